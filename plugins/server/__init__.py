"""The HTTP server of `t2t serve`; it needs the extra `[serve]`.

`app` has the endpoints and their errors; `batcher` has the limits, and runs requests
that wait together, in one thread; `served_model` is a run or an export with the calls
that the endpoints make; `page` is the web page.
"""
