"""The JSON of the protocol: every body and every answer is declared here once, as a struct. Handlers build and decode
these structs, and OpenAPI is generated from them. Documents that other packages read (schemas, search configurations,
profiles, requests to search) are declared in those packages.

The order of fields is the order of members in an answer. A field that is UNSET is left out.
"""
