// Requests to the server, whose errors are sentences.

export class Refusal extends Error {
  constructor(detail, status, wait) {
    super(detail);
    Object.assign(this, { status, wait });
  }
}

/** One request; a problem that the server tells is thrown as a `Refusal`. */
export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer: is latentuq serve still running?", 0, 2);
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refusal(problem.detail ?? response.statusText, response.status, Number(response.headers.get("Retry-After")));
}

export const get = async (path, options) => (await ask(path, options)).json();

export const post = async (path, body, options = {}) =>
  (await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), ...options })).json();

/** Follows a job: `hear` is called with the name and the data of each event. */
export function follow(id, hear) {
  const source = new EventSource(`/api/jobs/${id}/events`);
  for (const name of ["stated", "found", "done", "failed", "cancelled"]) {
    source.addEventListener(name, (event) => {
      if (name !== "stated" && name !== "found") source.close();
      hear(name, JSON.parse(event.data));
    });
  }
  // It tries again by itself, unless the server has refused.
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) hear("failed", { detail: "The server has lost this reconstruction: paint on." });
  };
  return () => source.close();
}
