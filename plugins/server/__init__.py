"""The HTTP server of `t2t serve`; it needs the extra `[serve]`.

`app` has the endpoints; `rest` reads and writes TensorFlow Serving's JSON, whose `rows`
have types, after `content_encoding` has decompressed it; `url_parts` are those of the
routes, `responses` the answers and errors, and `trusted_hosts` says which requests are
refused unread. `model_manager` loads, replaces and unloads the versions of models,
which `versions` finds in folders of exports. `batcher` runs waiting sentences together,
in the order of a `fair_queue`, by their `work`. `served_model` is a run or an export,
and `fallback_model` a converted run; `explanation` tells where the words of outputs
come from, and `alternatives` which other words there could be. `limits` are those of
requests and `connections`; `http` is uvicorn with these connections; `metrics` are for
Prometheus; `logs` passes each warning once a minute.

`page.html`, `page.css` and `page.js` are the web page, of which `sentence.js` shows a
sentence, `word_menu.js` changes a word, and `request.js` asks the server.
"""
