"""What a person sees: a file for each page, on the frame of `frame.py` and the parts of `parts.py`.

Every view has a URL: tabs, search, sorting and paging are in it, and plain links and forms change it. What a page shows
is rendered on the server and escaped there (`markupsafe`): names, messages and errors are hostile texts.
"""
