"""The APIs, one file each: the structs of the request, the request, the structs of the response, the response."""
