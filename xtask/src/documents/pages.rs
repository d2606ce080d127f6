//! The rules for pages: some have a limit of lines, each says whom it is for, and the book's table
//! of contents has each page of `docs/`.

/// How many lines a page may have.
const LIMITS: [(&str, usize); 3] =
    [("ARCHITECTURE.md", 350), ("CHANGELOG.md", 100), ("README.md", 150)];

const CONTENTS: &str = "docs/SUMMARY.md";

/// What is wrong with a page by itself.
pub(super) fn faults(name: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (lines, limit) = (text.lines().count(), LIMITS.iter().find(|(page, _)| *page == name));
    if let Some((_, limit)) = limit.filter(|(_, limit)| lines > *limit) {
        wrong.push(format!("{name} has {lines} lines, and may have {limit}"));
    }
    if name != CONTENTS && !names_readers(text) {
        wrong.push(format!("{name}: its first two lines do not say \"For …\", whom it is for"));
    }
    wrong
}

/// Whether the first two lines below the title say whom the page is for.
fn names_readers(text: &str) -> bool {
    let is_text = |line: &&str| !line.is_empty() && !line.starts_with(['#', '<', '!']);
    let mut lines = text.lines().filter(is_text).take(2);
    lines.any(|line| line.starts_with("For ") || line.contains(", for "))
}

/// Pages of `docs/` that the table of contents lacks.
pub(super) fn unlisted(contents: &str, pages: &[String]) -> Vec<String> {
    let inside = pages.iter().filter_map(|page| page.strip_prefix("docs/"));
    let is_listed = |page: &&str| *page == "SUMMARY.md" || contents.contains(&format!("]({page})"));
    inside.filter(|page| !is_listed(page)).map(|page| format!("{CONTENTS} lacks {page}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_whom_it_is_for_and_keeps_its_limit() {
        assert!(faults("docs/a.md", "<!-- x -->\n# A\n\nFor readers.\n").is_empty());
        assert!(faults("README.md", "# A\n\n**A thing**, for engineers.\n").is_empty());
        assert_eq!(faults("docs/a.md", "# A\n\none\ntwo\nFor readers.\n").len(), 1);
        let long = format!("# A\nFor readers.\n{}", "x\n".repeat(149));
        assert_eq!(faults("README.md", &long), ["README.md has 151 lines, and may have 150"]);
        assert!(faults("SECURITY.md", &long).is_empty());
    }

    #[test]
    fn a_page_that_the_contents_lack_is_found() {
        let pages = ["README.md", "docs/SUMMARY.md", "docs/a.md", "docs/b/c.md"];
        let lacking = ["docs/SUMMARY.md lacks b/c.md"];
        assert_eq!(unlisted("- [A](a.md)", &pages.map(str::to_owned)), lacking);
    }
}
