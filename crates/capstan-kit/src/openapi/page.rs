//! The document as a page for people: a section for each part, an article for each route, the
//! models at the end. It reads the document, and of refusals the catalogue that the document was
//! made from.
// A `Value` that is read by a name it does not hold is null.
#![allow(clippy::indexing_slicing)]

mod example;
mod kind;
mod refusals;

use serde_json::{Map, Value};

use crate::html::{escape, inline, prose};
use kind::kind;

/// One route and method of the document.
#[derive(Clone, Copy)]
struct Operation<'a> {
    document: &'a Value,
    method: &'a str,
    path: &'a str,
    object: &'a Value,
}

impl<'a> Operation<'a> {
    fn text(self, name: &str) -> &'a str {
        self.object[name].as_str().unwrap_or_default()
    }

    /// The parameters, with references resolved.
    fn parameters(self) -> impl Iterator<Item = &'a Value> {
        array(&self.object["parameters"]).map(move |parameter| {
            let shared = parameter["$ref"]
                .as_str()
                .and_then(|to| self.document.pointer(to.trim_start_matches('#')));
            shared.unwrap_or(parameter)
        })
    }

    fn heading(self) -> String {
        let (method, path) = (self.method, escape(self.path));
        format!(
            "<span class=\"method {method}\">{}</span> <code>{path}</code>",
            method.to_uppercase()
        )
    }
}

/// Everything between the head of the page and its end.
pub fn page(document: &Value) -> String {
    let tags: Vec<(&Value, Vec<Vec<Operation<'_>>>)> =
        array(&document["tags"]).map(|tag| (tag, grouped(document, &tag["name"]))).collect();
    let info = &document["info"];
    let nav: String = tags.iter().map(|(tag, groups)| contents(tag, groups)).collect();
    let sections: String = tags.iter().map(|(tag, groups)| section(tag, groups)).collect();
    format!(
        "<a class=skip href=#main>Skip to the routes</a>\
         <nav aria-label=Routes><p class=brand><a href=/>Capstan</a> {version}</p>{nav}<p><a \
         href=#models>Models</a></p></nav>\
         <main id=main class=wide><h1>All routes</h1>{about}\
         <p>The same for machines: <a href=/openapi.json>/openapi.json</a>. Every kind of fault: \
         <a href=/v1/errors>/v1/errors</a>.</p>\
         {sections}{models}</main>",
        version = escape(info["version"].as_str().unwrap_or_default()),
        about = prose(info["description"].as_str().unwrap_or_default()),
        models = models(&document["components"]["schemas"]),
    )
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The routes of a section. Routes that differ only in their path share an article.
fn grouped<'a>(document: &'a Value, tag: &Value) -> Vec<Vec<Operation<'a>>> {
    let all = members(&document["paths"]).flat_map(|(path, methods)| {
        members(methods).map(move |(method, object)| Operation { document, method, path, object })
    });
    let mut groups: Vec<Vec<Operation<'_>>> = Vec::new();
    for operation in all.filter(|operation| operation.object["tags"][0] == *tag) {
        let is_same = |group: &&mut Vec<Operation<'_>>| {
            group.first().is_some_and(|first| {
                (first.method, first.text("description"))
                    == (operation.method, operation.text("description"))
            })
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(operation),
            None => groups.push(vec![operation]),
        }
    }
    groups
}

fn contents(tag: &Value, groups: &[Vec<Operation<'_>>]) -> String {
    let link = |first: &Operation<'_>| {
        format!("<li><a href=\"#{}\">{}</a></li>", first.text("operationId"), first.heading())
    };
    let items: String = groups.iter().filter_map(|group| group.first()).map(link).collect();
    format!("<h2>{}</h2><ul>{items}</ul>", escape(tag["name"].as_str().unwrap_or_default()))
}

fn section(tag: &Value, groups: &[Vec<Operation<'_>>]) -> String {
    let articles: String = groups.iter().map(|group| article(group)).collect();
    let (name, says) = (&tag["name"], &tag["description"]);
    format!(
        "<section><h2>{}</h2><p>{}</p>{articles}</section>",
        escape(name.as_str().unwrap_or_default()),
        inline(says.as_str().unwrap_or_default())
    )
}

fn article(group: &[Operation<'_>]) -> String {
    // Use the route with the most parameters.
    let fullest = |operation: &&Operation<'_>| operation.parameters().count();
    let (Some(first), Some(full)) = (group.first(), group.iter().max_by_key(fullest)) else {
        return String::new();
    };
    let also: String = group
        .iter()
        .skip(1)
        .map(|twin| {
            format!("<p class=also id={}>Also {}</p>", twin.text("operationId"), twin.heading())
        })
        .collect();
    format!(
        "<article id={id}><h3><a href=\"#{id}\">{heading}</a></h3>{also}<p \
         class=summary>{summary}</p>{says}{authentication}\
         {parameters}{body}{example}{answers}{refusals}</article>",
        id = first.text("operationId"),
        heading = first.heading(),
        summary = escape(first.text("summary")),
        says = prose(first.text("description")),
        authentication = authentication(first.object),
        parameters = parameters(*full),
        body = body(&first.object["requestBody"]),
        example = example::curl(*first),
        answers = answers(&first.object["responses"]),
        refusals = refusals::section(&first.object["responses"]),
    )
}

fn authentication(operation: &Value) -> &'static str {
    match array(&operation["security"]).count() {
        0 => "<p class=who>Open without a key.</p>",
        1 => "<p class=who>Needs a key: <code>Authorization: Bearer …</code></p>",
        _ => {
            "<p class=who>Needs a key, <code>Authorization: Bearer …</code>, or a ticket, \
             <code>?ticket=…</code></p>"
        }
    }
}

fn table(heads: [&str; 3], rows: &str) -> String {
    let heads: String = heads.iter().map(|head| format!("<th scope=col>{head}</th>")).collect();
    format!("<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>")
}

fn parameters(operation: Operation<'_>) -> String {
    let row = |parameter: &Value| {
        let text = |name: &str| parameter[name].as_str().unwrap_or_default();
        let required = if parameter["required"] == true { ", required" } else { "" };
        format!(
            "<tr><th scope=row><code>{}</code></th><td>{}{required}<br>{}</td><td>{}</td></tr>",
            escape(text("name")),
            text("in"),
            kind(&parameter["schema"]),
            inline(text("description"))
        )
    };
    let rows: String = operation.parameters().map(row).collect();
    format!("<h4>Parameters</h4>{}", table(["Name", "Where, and what", "Meaning"], &rows))
}

fn body(body: &Value) -> String {
    let Some(schema) = body["content"]["application/json"].get("schema") else {
        return String::new();
    };
    let says = prose(body["description"].as_str().unwrap_or_default());
    format!("<h4>Body</h4><p><code>application/json</code>: {}</p>{says}", kind(schema))
}

fn answers(responses: &Value) -> String {
    let rows: String =
        members(responses).filter(|(status, _)| status.as_str() < "400").map(answer).collect();
    format!("<h4>Answers</h4>{}", table(["Status", "Content", "Meaning"], &rows))
}

fn answer((status, response): (&String, &Value)) -> String {
    let content = |(media, content): (&String, &Value)| {
        let data = content["schema"]["properties"]["data"].get("contentSchema");
        let what =
            data.map_or_else(|| kind(&content["schema"]), |data| format!("each {}", kind(data)));
        format!("<code>{}</code><br>{what}<br>", escape(media))
    };
    let kinds: String = members(&response["content"]).map(content).collect();
    let kinds = if kinds.is_empty() { "no body".to_owned() } else { kinds };
    let headers: Vec<String> = members(&response["headers"])
        .map(|(name, _)| format!("<code>{}</code>", escape(name)))
        .collect();
    format!(
        "<tr><th scope=row>{status}</th><td>{kinds}</td><td>{} With {}.</td></tr>",
        inline(response["description"].as_str().unwrap_or_default()),
        headers.join(", ")
    )
}

fn models(schemas: &Value) -> String {
    let model = |(name, schema): (&String, &Value)| {
        let mut rest: Map<String, Value> = schema.as_object().cloned().unwrap_or_default();
        let says = rest.get_mut("description").map(Value::take).unwrap_or_default();
        rest.retain(|name, _| name != "description");
        format!(
            "<details id=\"model-{name}\"><summary><code>{name}</code> {}</summary>{}</details>",
            inline(says.as_str().unwrap_or_default().lines().next().unwrap_or_default()),
            kind::definition(&Value::Object(rest)),
            name = escape(name),
        )
    };
    let models: String = members(schemas).map(model).collect();
    format!(
        "<section id=models><h2>Models</h2><p>JSON Schema, as in the document. A model whose \
         request form differs from its response form has a second schema that ends in \
         <code>Input</code>.</p>{models}</section>"
    )
}
