//! The parameters of a call: the query protocol's form, or the top of a JSON document; lists,
//! filters and wildcards.

use std::collections::BTreeMap;

pub type Params = BTreeMap<String, String>;

/// `a=b&c=d`, with `%` and `+`.
pub fn form(body: &[u8]) -> Params {
    let text = String::from_utf8_lossy(body);
    let pairs = text
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(key, value)| (decode(key), decode(value))).collect()
}

pub fn decode(text: &str) -> String {
    let (mut bytes, mut out) = (text.bytes(), Vec::with_capacity(text.len()));
    while let Some(byte) = bytes.next() {
        let hex = |byte: Option<u8>| {
            byte.and_then(|byte| char::from(byte).to_digit(16)).unwrap_or_default() as u8
        };
        match byte {
            b'+' => out.push(b' '),
            b'%' => out.push(hex(bytes.next()) * 16 + hex(bytes.next())),
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub fn encode(params: &Params) -> Vec<u8> {
    let word = |text: &str| -> String {
        let letter = |byte: u8| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        };
        text.bytes().map(letter).collect()
    };
    params
        .iter()
        .map(|(key, value)| format!("{}={}", word(key), word(value)))
        .collect::<Vec<_>>()
        .join("&")
        .into_bytes()
}

/// The scalars at the top of a JSON document, as if they were parameters.
pub fn of_json(document: &serde_json::Value) -> Params {
    let pairs = document.as_object().into_iter().flatten();
    let text =
        |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    pairs.map(|(key, value)| (key.clone(), text(value))).collect()
}

/// `Name.1`, `Name.2`, ... in their order.
pub fn list(params: &Params, name: &str) -> Vec<String> {
    (1..).map_while(|n| params.get(&format!("{name}.{n}")).cloned()).collect()
}

/// `Filter.N.Name` with its values.
pub fn filters(params: &Params) -> Vec<(String, Vec<String>)> {
    let name = |n: usize| {
        params
            .get(&format!("Filter.{n}.Name"))
            .map(|name| (name.clone(), list(params, &format!("Filter.{n}.Value"))))
    };
    (1..).map_while(name).collect()
}

/// The tags of `TagSpecification.N` for one type of resource.
pub fn tags(params: &Params, resource: &str) -> BTreeMap<String, String> {
    let kind = |n: usize| params.get(&format!("TagSpecification.{n}.ResourceType"));
    let of = |n: usize| pairs(params, &format!("TagSpecification.{n}.Tag"));
    (1..)
        .take_while(|n| kind(*n).is_some())
        .filter(|n| kind(*n).is_some_and(|kind| kind == resource))
        .flat_map(of)
        .collect()
}

/// `PREFIX.N.Key` with `PREFIX.N.Value`.
pub fn pairs(params: &Params, prefix: &str) -> Vec<(String, String)> {
    let pair = |n: usize| {
        let key = params.get(&format!("{prefix}.{n}.Key"))?;
        Some((key.clone(), params.get(&format!("{prefix}.{n}.Value")).cloned().unwrap_or_default()))
    };
    (1..).map_while(pair).collect()
}

/// `*` is any text, `?` any letter.
pub fn like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, from)) = star {
            (p, t, star) = (at + 1, from + 1, Some((at, from + 1)));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

/// Standard base64 to bytes; `None` if it is none.
pub fn base64(text: &str) -> Option<Vec<u8>> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=')
        .map(value)
        .collect::<Option<Vec<u32>>>()?;
    let quad = |four: &[u32]| {
        let bits = four.iter().enumerate().fold(0, |bits, (n, digit)| bits | digit << (18 - 6 * n));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    Some(digits.chunks(4).flat_map(quad).collect())
}

pub fn encode_base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let triple = |three: &[u8]| {
        let bits = three
            .iter()
            .enumerate()
            .fold(0_u32, |bits, (n, byte)| bits | u32::from(*byte) << (16 - 8 * n));
        let letter = |n: usize| {
            if n <= three.len() {
                char::from(LETTERS[(bits >> (18 - 6 * n) & 63) as usize])
            } else {
                '='
            }
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(triple).collect()
}
