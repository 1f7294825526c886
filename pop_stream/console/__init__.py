"""The web console: what a person sees of pop_stream, and does with it.

`pop-stream serve` has it at `/ui`. It is a client of the API and of nothing else: whatever a
page shows or does, it asks the API for, with the key that its viewer signed in with. So there
is no second rule of who may see what, and no second truth.

- `sessions` knows who is signed in. A session lives in the memory of one process until it
  expires, its viewer signs out, or the API does not know its key any more. Where the API asks
  nobody who calls, there is one session, which everybody has.
- `viewing` is what a page is given: the caller, a client, and what the caches hold.
- `pages` makes each page of what the API answers; a page is a template and its values.
- `rendering` turns values into text; `pictures` draws SVG, which works without scripts and
  prints. Every picture stands beside a table that says the same.
- `oidc` signs viewers in at an issuer, `layout` is what every page has around it.
- `live` sends a page's main part again whenever it has changed, while somebody looks at it.
- `app` puts these together, and stands before every request: no page of another site may act
  in a viewer's name, and nothing that a customer wrote is ever markup.

Pages and forms work without JavaScript; the one module in `static` brings changes in place and
keyboard shortcuts. It survives whatever the API survives: a page that cannot be made says why,
with the API's own words and the id of the request.
"""
