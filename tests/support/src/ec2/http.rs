//! HTTP/1.1 as a test needs it: one thread a connection, keep-alive towards the program, one
//! connection a call towards moto.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use jiff::SignedDuration;
use jiff::fmt::rfc2822;

/// The format of every date in a head.
pub const HTTP_DATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// moto answers a first DescribeInstanceTypes in seconds, on a busy machine in many.
const PATIENCE: Duration = Duration::from_secs(120);

/// The status for a missing answer: moto could not be reached, or closed its connection. The text
/// has the reason.
pub const NO_ANSWER: u16 = 599;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// With its query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

fn of<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

impl Request {
    pub fn header(&self, name: &str) -> &str {
        of(&self.headers, name)
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The next one of a connection; `None` when it has ended.
    pub fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
        let Some((first, headers)) = head(stream)? else { return Ok(None) };
        let mut words = first.split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let mut request = Request { method: word(), target: word(), headers, body: Vec::new() };
        if request.header("expect").eq_ignore_ascii_case("100-continue") {
            stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = match request.header("content-length").parse() {
            Ok(length) => exactly(stream, length)?,
            Err(_) if request.header("transfer-encoding").eq_ignore_ascii_case("chunked") => {
                chunks(stream)?
            }
            Err(_) => Vec::new(),
        };
        Ok(Some(request))
    }

    /// By its method or the name of its action: to ask twice changes nothing, or is refused the
    /// second time by the name of what it makes.
    pub fn may_be_asked_again(&self) -> bool {
        const MAKES_ONE_MORE: [&str; 5] =
            ["RunInstances", "CreateVolume", "AllocateAddress", "CreateSubnet", "PutMetricData"];
        let body = String::from_utf8_lossy(&self.body);
        let of_a_form = body.split('&').find_map(|pair| pair.strip_prefix("Action="));
        let of_a_document = self.header("x-amz-target").rsplit_once('.').map(|(_, name)| name);
        match (self.method.as_str(), of_a_form, of_a_document) {
            ("GET" | "HEAD", ..) => true,
            (_, Some(action), _) => !MAKES_ONE_MORE.contains(&action),
            (_, None, Some(action)) => {
                ["Describe", "Get", "List"].iter().any(|verb| action.starts_with(verb))
            }
            // An object that is put under a condition is there the second time.
            (_, None, None) => false,
        }
    }

    /// Asks moto, as this account.
    pub fn ask(&self, address: &str, account: &str) -> io::Result<Answer> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let ours =
            ["connection", "content-length", "transfer-encoding", "expect", "x-moto-account-id"];
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (key, value) in
            self.headers.iter().filter(|(key, _)| !ours.contains(&key.to_lowercase().as_str()))
        {
            head.push_str(&format!("{key}: {value}\r\n"));
        }
        head.push_str(&format!(
            "x-moto-account-id: {account}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.body.len()
        ));
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        Answer::read(&mut BufReader::new(stream), self.method == "HEAD")
    }
}

impl Answer {
    pub fn new(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Answer { status, headers: vec![("Content-Type".into(), kind.into())], body: body.into() }
    }

    pub fn header(&self, name: &str) -> &str {
        of(&self.headers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn read(stream: &mut BufReader<TcpStream>, headless: bool) -> io::Result<Answer> {
        let (first, headers) = head(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = first
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut answer = Answer { status, headers, body: Vec::new() };
        if headless {
            return Ok(answer);
        }
        answer.body = match answer.header("content-length").parse() {
            Ok(length) => exactly(stream, length)?,
            Err(_) if answer.header("transfer-encoding").eq_ignore_ascii_case("chunked") => {
                chunks(stream)?
            }
            Err(_) => {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest)?;
                rest
            }
        };
        Ok(answer)
    }

    /// An object was written by the clock of the cloud, not by moto's.
    pub fn shift_last_modified(&mut self, by: SignedDuration) {
        let moved = |value: &str| {
            Some((rfc2822::parse(value).ok()?.timestamp() + by).strftime(HTTP_DATE).to_string())
        };
        for (key, value) in self
            .headers
            .iter_mut()
            .filter(|(key, _)| !by.is_zero() && key.eq_ignore_ascii_case("last-modified"))
        {
            *value = moved(value).unwrap_or_else(|| panic!("{key}: {value}"));
        }
    }

    pub fn write(&self, stream: &mut TcpStream, headless: bool, date: &str) -> io::Result<()> {
        let ours = ["connection", "transfer-encoding", "date"];
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nDate: {date}\r\n",
            self.status,
            if self.status < 400 { "OK" } else { "Error" }
        );
        for (key, value) in &self.headers {
            let name = key.to_lowercase();
            // An answer to HEAD has the length of the body, but no body.
            if !ours.contains(&name.as_str()) && (headless || name != "content-length") {
                head.push_str(&format!("{key}: {value}\r\n"));
            }
        }
        if !headless && self.status != 204 {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        stream.write_all(&[head.as_bytes(), if headless { b"" } else { &self.body[..] }].concat())
    }
}

type Head = (String, Vec<(String, String)>);

fn head(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Head>> {
    let mut first = String::new();
    if stream.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(':') {
            Some((key, value)) => headers.push((key.trim().to_owned(), value.trim().to_owned())),
            None => return Ok(Some((first.trim_end().to_owned(), headers))),
        }
    }
}

fn exactly(stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn chunks(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim().split(';').next().unwrap_or_default(), 16)
            .map_err(|_| io::ErrorKind::InvalidData)?;
        body.extend(exactly(stream, length)?);
        stream.read_line(&mut line)?;
        if length == 0 {
            return Ok(body);
        }
    }
}
