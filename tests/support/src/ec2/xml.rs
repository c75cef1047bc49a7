//! As much XML as EC2 speaks: elements and text. No attributes but the name space of the root,
//! which is dropped.

use std::fmt::Write as _;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub name: String,
    pub text: String,
    pub children: Vec<Node>,
}

impl Node {
    pub fn new(name: &str) -> Self {
        Node { name: name.into(), ..Node::default() }
    }

    pub fn leaf(name: &str, text: impl ToString) -> Self {
        Node { name: name.into(), text: text.to_string(), children: Vec::new() }
    }

    pub fn with(name: &str, children: impl IntoIterator<Item = Node>) -> Self {
        Node { name: name.into(), text: String::new(), children: children.into_iter().collect() }
    }

    pub fn parse(text: &str) -> Node {
        let mut open = vec![Node::default()];
        let mut rest = text;
        while let Some(start) = rest.find('<') {
            let last = open.last_mut().expect("the document is open");
            last.text.push_str(&plain(&rest[..start]));
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            if tag.starts_with(['?', '!']) {
                continue;
            }
            let name = tag.trim_end_matches('/').split_whitespace().next().unwrap_or_default();
            if !tag.starts_with('/') {
                open.push(Node::new(name));
            }
            if tag.starts_with('/') || tag.ends_with('/') {
                let mut node = open.pop().expect("what ends was opened");
                if !node.children.is_empty() {
                    node.text.clear();
                }
                open.last_mut().expect("the document is open").children.push(node);
            }
        }
        open.swap_remove(0).children.pop().unwrap_or_default()
    }

    /// The first child of this name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|child| child.name == name)
    }

    pub fn get_mut(&mut self, name: &str) -> &mut Node {
        let at = self.children.iter().position(|child| child.name == name).unwrap_or_else(|| {
            self.children.push(Node::new(name));
            self.children.len() - 1
        });
        &mut self.children[at]
    }

    /// The text at a path of names, `a/b/c`; empty where there is none.
    pub fn at(&self, path: &str) -> &str {
        path.split('/').try_fold(self, |node, name| node.get(name)).map_or("", |node| &node.text)
    }

    /// The items of a set.
    pub fn items(&self, name: &str) -> &[Node] {
        self.get(name).map_or(&[], |set| &set.children)
    }

    /// Every node of this name, at any depth.
    pub fn all(&self, name: &str) -> Vec<&Node> {
        let below = self.children.iter().flat_map(|child| child.all(name));
        (self.name == name).then_some(self).into_iter().chain(below).collect()
    }

    pub fn set(&mut self, child: Node) {
        let name = child.name.clone();
        *self.get_mut(&name) = child;
    }

    pub fn remove(&mut self, name: &str) {
        self.children.retain(|child| child.name != name);
    }

    pub fn write(&self, out: &mut String) {
        if self.children.is_empty() && self.text.is_empty() {
            let _ = write!(out, "<{}/>", self.name);
            return;
        }
        let _ = write!(out, "<{}>", self.name);
        match self.text.contains(['<', '>', '&', '"']) {
            true => out.push_str(&escaped(&self.text)),
            false => out.push_str(&self.text),
        }
        self.children.iter().for_each(|child| child.write(out));
        let _ = write!(out, "</{}>", self.name);
    }
}

fn escaped(text: &str) -> String {
    [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;")]
        .iter()
        .fold(text.to_owned(), |text, (letter, entity)| text.replace(letter, entity))
}

fn plain(text: &str) -> String {
    let text = text.trim();
    if !text.contains('&') {
        return text.into();
    }
    let named = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    named.iter().fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter))
}
