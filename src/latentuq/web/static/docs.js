// The API as /openapi.json describes it.

const { paths, components } = await (await fetch("/openapi.json")).json();
const name = (reference) => reference.split("/").pop();

function make(tag, ...inside) {
  const element = document.createElement(tag);
  element.append(...inside);
  return element;
}

/** A type in words, with links to those that have a name. */
function kind(schema) {
  if (!schema) return "nothing";
  if (schema.$ref) return Object.assign(make("a", name(schema.$ref)), { href: `#${name(schema.$ref)}` });
  const parts = schema.anyOf ?? schema.oneOf;
  if (parts) return make("span", ...parts.flatMap((each, place) => (place ? [" or ", kind(each)] : [kind(each)])));
  if (schema.enum ?? schema.const) return (schema.enum ?? [schema.const]).map((each) => JSON.stringify(each)).join(", ");
  return schema.type === "array" ? make("span", "list of ", kind(schema.items)) : (schema.type ?? "anything");
}

function rows(found) {
  return make("table", make("tbody", ...found.map(([title, type, text]) => {
    const head = make("th", title);
    head.scope = "row";
    return make("tr", head, make("td", type, text ? `. ${text}` : ""));
  })));
}

const body = (content) => kind(Object.values(content ?? {})[0]?.schema);

document.getElementById("paths").append(make("h2", "Requests"), ...Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).flatMap(([method, { summary, parameters = [], requestBody, responses }]) => [
    make("h3", make("code", `${method.toUpperCase()} ${path}`)),
    make("p", summary),
    rows([
      ...parameters.map((each) => [each.name, kind(each.schema), each.description]),
      ...(requestBody ? [["body", body(requestBody.content), ""]] : []),
      ...Object.entries(responses).map(([status, each]) => [status, body(each.content), each.description]),
    ]),
  ])));
document.getElementById("schemas").append(make("h2", "Values"), ...Object.entries(components.schemas).flatMap(([title, schema]) => {
  const head = Object.assign(make("h3", title), { id: title });
  return [head, make("p", schema.description ?? ""),
    rows(Object.entries(schema.properties ?? {}).map(([key, each]) => [key, kind(each), each.description]))];
}));
