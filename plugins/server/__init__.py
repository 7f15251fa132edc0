"""The HTTP server of `t2t serve`; it needs the extra `[serve]`.

`app` has the endpoints and their errors; `rest` reads and writes TensorFlow Serving's
JSON, whose `rows` have types, after `content_encoding` has decompressed it; `url_parts`
are those of the routes; `batcher` runs waiting sentences together; `served_model`
is a run or an export, and `fallback_model` a converted run; `explanation` tells where
the words of outputs come from, and `alternatives` which other words there could be;
`versions` watches a folder of exports; `limits` are those of requests and
`connections`; `http` is uvicorn with these connections; `logs` passes each warning once
a minute.

`page.html`, `page.css` and `page.js` are the web page, of which `sentence.js` shows a
sentence, `word_menu.js` changes a word, and `request.js` asks the server.
"""
