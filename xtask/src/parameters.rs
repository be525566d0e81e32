//! Parameters that are tuples: they hide how many things a function is given, and their parts have
//! names in one place only. A struct says what belongs together.

use std::path::Path;

use syn::visit::{self, Visit};
use syn::{FnArg, ImplItemFn, ItemFn, ItemImpl, Signature, TraitItemFn, Type};

/// Finds functions of a file that take a tuple.
pub(crate) fn check(file: &Path, text: &str, faults: &mut Vec<String>) {
    // Reading Rust takes a while, and few files have anything that may be one.
    if ![": (", ": &("].iter().any(|it| text.contains(it)) {
        return;
    }
    let Ok(parsed) = syn::parse_file(text) else {
        return faults.push(format!("{}: is no Rust", file.display()));
    };
    let mut finder = Finder { file, faults, in_trait_impl: false };
    finder.visit_file(&parsed);
}

struct Finder<'a> {
    file: &'a Path,
    faults: &'a mut Vec<String>,
    /// What a trait asks for is decided where the trait is.
    in_trait_impl: bool,
}

impl Finder<'_> {
    fn signature(&mut self, signature: &Signature) {
        let takes_tuple = signature.inputs.iter().any(|input| match input {
            FnArg::Typed(typed) => is_tuple(&typed.ty),
            FnArg::Receiver(_) => false,
        });
        if takes_tuple && !self.in_trait_impl {
            let (file, name) = (self.file.display(), &signature.ident);
            self.faults.push(format!("{file}: fn {name} takes a tuple: make it a struct"));
        }
    }
}

fn is_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let before = std::mem::replace(&mut self.in_trait_impl, false);
        self.signature(&item.sig);
        visit::visit_item_fn(self, item);
        self.in_trait_impl = before;
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let before = std::mem::replace(&mut self.in_trait_impl, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.in_trait_impl = before;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.signature(&item.sig);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.signature(&item.sig);
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_found_wherever_a_function_is_but_not_where_a_trait_asks_for_them() {
        let text = "
            fn free((a, b): (u8, u8)) {}
            fn fine(a: u8, f: impl Fn((u8, u8)), nothing: ()) {}
            struct S;
            impl S { fn of(self, pair: &(u8, u8)) {} }
            trait T { fn asks(pair: (u8, u8)); }
            impl Extend<(u8, u8)> for S { fn extend_one(&mut self, pair: (u8, u8)) {} }
            mod inner { fn deep() { fn nested(pair: (u8, u8)) {} } }
        ";
        let mut faults = Vec::new();
        check("a.rs".as_ref(), text, &mut faults);
        let names: Vec<&str> =
            faults.iter().filter_map(|it| it.split("fn ").nth(1)?.split(' ').next()).collect();
        assert_eq!(names, ["free", "of", "asks", "nested"]);
    }
}
