"""The HTTP server of `t2t serve`; it needs the extra `[serve]`.

`command` has the flags and finds the models; `http` runs uvicorn with the endpoints of
`app`, which `metrics` count for Prometheus. `requests` reads and writes TensorFlow
Serving's JSON within its limits. `model_manager` loads, replaces and unloads the
versions of models, which `versions` finds in folders of exports. `queue` runs waiting
sentences together, fairly between clients. `served_model` is a run or an export;
`explanation` tells where the words of its outputs come from, and which other words
there could be.

`page.html`, `page.css` and `page.js` are the web page, of which `sentence.js` shows a
sentence, `word_menu.js` changes a word, and `request.js` asks the server.
"""
