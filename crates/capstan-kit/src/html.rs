//! Plain HTML pages without scripts. Their only resource is one style sheet.

use axum::response::{Html, IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderName, header};

/// The style of all plain pages, served at `/docs/style.css`.
pub const STYLE: &str = include_str!("html/style.css");

/// The content security policy: no scripts, and no resource but the style sheet.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
 frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 2] =
    [(header::CONTENT_SECURITY_POLICY, POLICY), (header::REFERRER_POLICY, "no-referrer")];

/// Builds a page around HTML.
pub fn page(title: &str, body: &str) -> Response {
    response(text(title, body).into())
}

/// The response of a page.
pub fn response(text: Bytes) -> Response {
    (HEADERS, Html(text)).into_response()
}

/// The text of a page.
pub fn text(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport \
         content='width=device-width, initial-scale=1'>\
         <meta name=color-scheme content='light dark'><title>{}</title><link rel=stylesheet \
         href=/docs/style.css>{body}",
        escape(title)
    )
}

/// Escapes text for elements and quoted attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Converts simple Markdown to HTML: paragraphs, lists of one level and `code`.
pub fn prose(text: &str) -> String {
    text.split("\n\n").map(block).collect()
}

fn block(text: &str) -> String {
    if text.starts_with("- ") {
        let items: String = text
            .lines()
            .map(|line| format!("<li>{}</li>", inline(line.trim_start_matches("- "))))
            .collect();
        return format!("<ul>{items}</ul>");
    }
    format!("<p>{}</p>", inline(text))
}

/// Converts one line. Text between backticks becomes code.
pub fn inline(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    pieces
        .map(
            |(n, piece)| {
                if n % 2 == 1 { format!("<code>{}</code>", escape(piece)) } else { escape(piece) }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(inline("a `<b>` & \"c\""), "a <code>&lt;b&gt;</code> &amp; &quot;c&quot;");
        assert_eq!(
            prose("one\n\n- `two`\n- three"),
            "<p>one</p><ul><li><code>two</code></li><li>three</li></ul>"
        );
    }
}
