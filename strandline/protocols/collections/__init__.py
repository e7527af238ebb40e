"""Collections: signed elements appended to documents, as the Starfish protocol has them."""
