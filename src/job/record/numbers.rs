//! The numbers behind a reason, sorted by name.
//!
//! A watching policy makes a dozen numbers at each look and soon drops nearly all. One row of
//! static names costs a tenth of a tree with copied names. In records they are a map.

use std::borrow::Cow;
use std::fmt;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers(Vec<(Cow<'static, str>, f64)>);

impl Numbers {
    /// Makes room for this many more.
    pub fn reserve(&mut self, many: usize) {
        self.0.reserve_exact(many);
    }

    /// Replaces an earlier number of this name. Insertion in name order moves nothing.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, number: f64) {
        let name = name.into();
        if self.0.last().is_none_or(|(last, _)| *last < name) {
            self.0.push((name, number));
            return;
        }
        match self.place(&name) {
            Ok(place) => self.0[place].1 = number,
            Err(place) => self.0.insert(place, (name, number)),
        }
    }

    pub fn get(&self, name: &str) -> Option<&f64> {
        self.place(name).ok().map(|place| &self.0[place].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &f64)> {
        self.0.iter().map(|(name, number)| (&**name, number))
    }

    pub fn values(&self) -> impl Iterator<Item = &f64> {
        self.0.iter().map(|(_, number)| number)
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(name))
    }
}

impl Index<&str> for Numbers {
    type Output = f64;

    fn index(&self, name: &str) -> &f64 {
        self.get(name).expect("whoever indexes knows that it is there")
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfAMap)
    }
}

struct OfAMap;

impl<'de> Visitor<'de> for OfAMap {
    type Value = Numbers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Numbers, A::Error> {
        let mut numbers = Numbers::default();
        while let Some((name, number)) = map.next_entry::<String, f64>()? {
            numbers.insert(name, number);
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn they_read_and_write_as_a_map_does() {
        for text in
            [r#"{"b":1.5,"a":2.0,"c":3.0,"a":4.0}"#, "{}", r#"{"x":null}"#, r#"{"x":"1"}"#, "[]"]
        {
            let map = serde_json::from_str::<BTreeMap<String, f64>>(text).ok();
            let numbers = serde_json::from_str::<Numbers>(text).ok();
            assert_eq!(numbers.is_some(), map.is_some(), "{text}");
            let Some((map, numbers)) = map.zip(numbers) else { continue };
            assert_eq!(
                serde_json::to_string_pretty(&numbers).unwrap(),
                serde_json::to_string_pretty(&map).unwrap()
            );
            assert!(map.iter().all(|(name, number)| numbers.get(name) == Some(number)), "{text}");
        }
    }

    #[test]
    fn they_stand_in_the_order_of_their_names_however_they_came() {
        let mut numbers = Numbers::default();
        for (name, number) in [("m", 1.0), ("a", 2.0), ("z", 3.0), ("m", 4.0), ("b", 5.0)] {
            numbers.insert(name, number);
        }
        assert_eq!(
            numbers.iter().collect::<Vec<_>>(),
            [("a", &2.0), ("b", &5.0), ("m", &4.0), ("z", &3.0)]
        );
        assert_eq!((numbers["m"], numbers.get("n")), (4.0, None));
    }
}
