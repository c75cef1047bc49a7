//! Which files of `src` use each other in a circle.
//!
//! An arrow goes from a file to the file that defines what it names: through `use`, through a path
//! in the code, and through the re-exports of a `mod.rs`. Code under `#[cfg(test)]` draws none, and
//! neither does a method that is called on a value.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;

type Module = Vec<String>;

#[derive(Default)]
struct Scope {
    file: PathBuf,
    /// A `mod.rs` holds re-exports alone: no arrow begins or ends there.
    is_map: bool,
    defined: BTreeSet<String>,
    aliases: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// The arrows between the files, and for each the names that draw it.
pub struct Arrows(BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>);

/// Reads all files: the path below `src`, and the text.
pub fn arrows(files: &[(PathBuf, String)]) -> Arrows {
    let parsed: Vec<(PathBuf, syn::File)> = files
        .iter()
        .map(|(path, text)| {
            let file = syn::parse_file(text);
            (path.clone(), file.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    let mut scopes = BTreeMap::new();
    for (path, file) in &parsed {
        collect(&mut scopes, &module_of(path), path, &file.items);
    }
    let mut arrows = BTreeMap::new();
    for (path, file) in &parsed {
        if is_map(path) {
            continue;
        }
        let mut names = Names { module: module_of(path), found: Vec::new() };
        names.visit_file(file);
        let to: &mut BTreeMap<PathBuf, BTreeSet<String>> = arrows.entry(path.clone()).or_default();
        for (module, name) in names.found {
            let Some(scope) = resolve(&scopes, &module, &name, 0) else { continue };
            if !scope.is_map && scope.file != *path {
                to.entry(scope.file.clone()).or_default().insert(name.join("::"));
            }
        }
    }
    Arrows(arrows)
}

impl Arrows {
    /// Every set of files of which each reaches each other.
    pub fn circles(&self) -> Vec<Vec<PathBuf>> {
        let reach: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
            self.0.keys().map(|file| (file, self.reached(file))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (file, to) in &reach {
            if seen.contains(file) || !to.contains(*file) {
                continue;
            }
            let circle: Vec<PathBuf> = to
                .iter()
                .filter(|other| reach.get(*other).is_some_and(|back| back.contains(*file)))
                .map(|other| (*other).clone())
                .collect();
            seen.extend(to.iter().filter(|other| circle.contains(*other)).copied());
            circles.push(circle);
        }
        circles
    }

    /// The arrows inside one circle, as lines that a reader can act on.
    pub fn inside(&self, circle: &[PathBuf]) -> Vec<String> {
        let mut lines = Vec::new();
        for from in circle {
            for (to, names) in self.0.get(from).into_iter().flatten() {
                if circle.contains(to) {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let (from, to) = (from.display(), to.display());
                    lines.push(format!("{from} -> {to}  ({})", names.join(", ")));
                }
            }
        }
        lines
    }

    fn reached<'a>(&'a self, from: &PathBuf) -> BTreeSet<&'a PathBuf> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&PathBuf> =
            self.0.get(from).into_iter().flat_map(BTreeMap::keys).collect();
        while let Some(file) = open.pop() {
            if reached.insert(file) {
                open.extend(self.0.get(file).into_iter().flat_map(BTreeMap::keys));
            }
        }
        reached
    }
}

fn is_map(path: &Path) -> bool {
    path.ends_with("mod.rs") || path.ends_with("lib.rs")
}

fn module_of(path: &Path) -> Module {
    let path = if is_map(path) {
        path.parent().unwrap_or(Path::new("")).into()
    } else {
        path.with_extension("")
    };
    path.iter().map(|part| part.to_string_lossy().into_owned()).collect()
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return attribute.path().is_ident("test");
        };
        list.path.is_ident("cfg") && list.tokens.to_string() == "test"
    })
}

fn collect(
    scopes: &mut BTreeMap<Module, Scope>,
    module: &Module,
    path: &Path,
    items: &[syn::Item],
) {
    let mut scope = Scope { file: path.into(), is_map: is_map(path), ..Scope::default() };
    for item in items {
        let name = match item {
            syn::Item::Mod(inner) => {
                if let (Some((_, items)), false) = (&inner.content, is_test(&inner.attrs)) {
                    let mut below = module.clone();
                    below.push(inner.ident.to_string());
                    collect(scopes, &below, path, items);
                }
                continue;
            }
            syn::Item::Use(used) => {
                if !is_test(&used.attrs) {
                    leaves(&used.tree, &mut Vec::new(), &mut |alias, path| match alias {
                        Some(alias) => drop(scope.aliases.insert(alias, path)),
                        None => scope.globs.push(path),
                    });
                }
                continue;
            }
            syn::Item::Const(it) => it.ident.to_string(),
            syn::Item::Enum(it) => it.ident.to_string(),
            syn::Item::Fn(it) => it.sig.ident.to_string(),
            syn::Item::Static(it) => it.ident.to_string(),
            syn::Item::Struct(it) => it.ident.to_string(),
            syn::Item::Trait(it) => it.ident.to_string(),
            syn::Item::Type(it) => it.ident.to_string(),
            syn::Item::Union(it) => it.ident.to_string(),
            _ => continue,
        };
        scope.defined.insert(name);
    }
    scopes.insert(module.clone(), scope);
}

/// Each name that a `use` brings, with its whole path; no name for a glob.
fn leaves(
    tree: &syn::UseTree,
    at: &mut Vec<String>,
    take: &mut impl FnMut(Option<String>, Vec<String>),
) {
    match tree {
        syn::UseTree::Path(path) => {
            at.push(path.ident.to_string());
            leaves(&path.tree, at, take);
            at.pop();
        }
        syn::UseTree::Name(name) if name.ident == "self" => take(at.last().cloned(), at.clone()),
        syn::UseTree::Name(name) => {
            let whole = at.iter().cloned().chain([name.ident.to_string()]).collect();
            take(Some(name.ident.to_string()), whole);
        }
        syn::UseTree::Rename(name) => {
            let whole = at.iter().cloned().chain([name.ident.to_string()]).collect();
            take(Some(name.rename.to_string()), whole);
        }
        syn::UseTree::Glob(_) => take(None, at.clone()),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                leaves(tree, at, take);
            }
        }
    }
}

/// The scope that defines what a path names, seen from a module.
fn resolve<'a>(
    scopes: &'a BTreeMap<Module, Scope>,
    from: &Module,
    path: &[String],
    depth: usize,
) -> Option<&'a Scope> {
    let (first, rest) = path.split_first()?;
    if depth > 12 {
        return None;
    }
    let mut at = from.clone();
    let rest = match first.as_str() {
        "crate" => {
            at.clear();
            rest
        }
        "self" => rest,
        "super" => {
            at.pop();
            rest
        }
        _ => path,
    };
    let (name, after) = match rest.split_first() {
        Some((name, _)) if name == "super" => return resolve(scopes, &at, rest, depth + 1),
        Some(split) => split,
        None => return None,
    };
    let scope = scopes.get(&at)?;
    let mut below = at.clone();
    below.push(name.clone());
    if scopes.contains_key(&below) && !after.is_empty() {
        let inner: Vec<String> =
            ["self".to_owned()].into_iter().chain(after.iter().cloned()).collect();
        return resolve(scopes, &below, &inner, depth + 1);
    }
    if scope.defined.contains(name) {
        return Some(scope);
    }
    if let Some(alias) = scope.aliases.get(name) {
        let whole: Vec<String> = alias.iter().chain(after).cloned().collect();
        // A name that is its own alias would go round for ever: the crate of that name is meant.
        return (whole != path).then(|| resolve(scopes, &at, &whole, depth + 1)).flatten();
    }
    scope.globs.iter().find_map(|glob| {
        let whole: Vec<String> = glob.iter().chain([name]).chain(after).cloned().collect();
        resolve(scopes, &at, &whole, depth + 1)
    })
}

struct Names {
    module: Module,
    found: Vec<(Module, Vec<String>)>,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[syn::Attribute] = match item {
            syn::Item::Fn(it) => &it.attrs,
            syn::Item::Impl(it) => &it.attrs,
            syn::Item::Mod(it) => &it.attrs,
            syn::Item::Use(it) => &it.attrs,
            syn::Item::Const(it) => &it.attrs,
            syn::Item::Struct(it) => &it.attrs,
            syn::Item::Enum(it) => &it.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, inner: &'ast syn::ItemMod) {
        self.module.push(inner.ident.to_string());
        syn::visit::visit_item_mod(self, inner);
        self.module.pop();
    }

    fn visit_item_use(&mut self, used: &'ast syn::ItemUse) {
        let module = self.module.clone();
        leaves(&used.tree, &mut Vec::new(), &mut |_, path| self.found.push((module.clone(), path)));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.found.push((self.module.clone(), names));
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let text = called.tokens.to_string();
        let text = text.replace(" :: ", "::");
        for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            if word.contains("::") {
                let names = word.split("::").filter(|part| !part.is_empty()).map(str::to_owned);
                self.found.push((self.module.clone(), names.collect()));
            }
        }
        syn::visit::visit_macro(self, called);
    }
}
