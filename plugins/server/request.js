// Requests to the server, and small tools that the other files share.

export const $ = selector => document.querySelector(selector);

// Texts get into the page by textContent and attributes only.
export function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export async function ask(path, body) {
  const answer = await fetch(path, body && {
    method: "POST", body: JSON.stringify(body),
    headers: {"Content-Type": "application/json"},
  }).catch(() => { throw new Error("The server does not answer."); });
  const text = await answer.text();
  let data;
  // The score of an output that does not exist is -Infinity, which JSON lacks.
  const json = text.replace(/("(?:\\.|[^"\\])*")|-Infinity/g, (_, string) => string ?? "null");
  try { data = JSON.parse(json); }
  catch { data = {error: `status ${answer.status}`}; }
  if (!answer.ok) throw new Error(data.error);
  return data;
}

// Asks a signature of the chosen model; returns a result for each row.
export async function predict(signature_name, instances) {
  const path = `v1/models/${$("#model").value}:predict`;
  return (await ask(path, {signature_name, instances})).predictions;
}

export async function attempt(action) {
  $("[role=alert]").textContent = "";
  try { await action(); } catch (error) { $("[role=alert]").textContent = error.message; }
}

export const percent = probability =>
  probability > 0.995 && probability < 1 ? "over 99%"
    : probability < 0.005 ? "under 1%" : `${Math.round(100 * probability)}%`;

// Copies a text; pages that other machines get without TLS have no clipboard.
export async function copy(text) {
  if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
  const area = make("textarea", {"aria-hidden": "true"});
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
