"""The HTTP server of `t2t serve`; it needs the extra `[serve]`.

`app` has the endpoints and their errors; `rest` reads and writes TensorFlow Serving's
JSON; `batcher` has the limits, and runs sentences that wait together; `served_model` is
a run or an export; `versions` follows a folder of exports; `http` is uvicorn with
limits of connections, which are in `connections`; `logs` has one line a minute for
warnings that repeat; `page.html`, `page.css` and `page.js` are the web page.
"""
