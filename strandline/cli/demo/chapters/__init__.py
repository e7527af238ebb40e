"""The chapters, one idea each. A chapter is a function of the stage; it tells what it does and checks what it says."""
