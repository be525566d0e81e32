//! TCP connections to a name that may have several addresses.
//!
//! An address that drops what is sent to it takes minutes to fail, and often one family of addresses
//! works and the other does not. So attempts overlap, as RFC 8305 has it:
//!
//! ```text
//! first address   ├──────────── no answer ─ ─ ─
//! second, other family   ├── connected: this one counts
//!                   250 ms, or at once when an attempt before it fails
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;

/// Time between the starts of two attempts while none has failed.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Connects to the first address of `host` that answers.
///
/// # Errors
/// The name is not found, or none of its addresses can be reached.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let found = tokio::net::lookup_host((host, port)).await?;
    race(alternating(found.collect())).await
}

/// Orders addresses so that families take turns. The family that the system prefers begins.
fn alternating(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins = found.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv6() == begins);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut ordered = Vec::new();
    loop {
        let before = ordered.len();
        ordered.extend(one.next());
        ordered.extend(other.next());
        if ordered.len() == before {
            return ordered;
        }
    }
}

/// Connects to one of these. If none can be reached, the first failure is returned.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure = None;
    loop {
        match waiting.next() {
            Some(address) => attempts.push(TcpStream::connect(address)),
            None if attempts.is_empty() => {
                let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                return Err(failure.unwrap_or_else(none));
            }
            None => {}
        }
        tokio::select! {
            Some(ended) = attempts.next() => match ended {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            },
            () = tokio::time::sleep(NEXT_AFTER), if waiting.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    use tokio::net::{TcpListener, TcpStream};

    use super::{alternating, race};

    /// An address that answers nothing: the queue of its listener is full.
    struct Silent {
        address: SocketAddr,
        _listener: std::os::fd::OwnedFd,
        _waiting: Vec<TcpStream>,
    }

    impl Silent {
        async fn new() -> Self {
            let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
            listen(&listener, 0).unwrap();
            let address = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
            let mut waiting = Vec::new();
            let limit = Duration::from_millis(200);
            while let Ok(taken) = tokio::time::timeout(limit, TcpStream::connect(address)).await {
                waiting.push(taken.unwrap());
                assert!(waiting.len() < 100, "its queue has no end");
            }
            Self { address, _listener: listener, _waiting: waiting }
        }
    }

    async fn answering() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    // Every connection spent all of its time on the first address.
    #[tokio::test]
    async fn an_address_that_says_nothing_does_not_keep_another_from_being_tried() {
        let silent = Silent::new().await;
        let (_listener, address) = answering().await;
        let connecting = race(vec![silent.address, silent.address, address]);
        let connected = tokio::time::timeout(Duration::from_secs(5), connecting).await;
        assert_eq!(connected.unwrap().unwrap().peer_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_at_once_and_the_first_failure_is_told() {
        let refusing: SocketAddr = {
            let (_gone, address) = answering().await;
            address
        };
        let (_listener, address) = answering().await;
        let connected = race(vec![refusing, address]).await.unwrap();
        assert_eq!(connected.peer_addr().unwrap(), address);
        let failure = race(vec![refusing, "[::]:0".parse().unwrap()]).await.unwrap_err();
        assert_eq!(failure.kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(race(Vec::new()).await.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn families_take_turns_and_the_preferred_one_begins() {
        let of = |text: &str| -> Vec<SocketAddr> {
            text.split(' ').map(|address| address.parse().unwrap()).collect()
        };
        let found = of("[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1");
        assert_eq!(alternating(found), of("[::1]:1 1.1.1.1:1 [::2]:1 [::3]:1"));
        let found = of("1.1.1.1:1 2.2.2.2:1 [::1]:1");
        assert_eq!(alternating(found), of("1.1.1.1:1 [::1]:1 2.2.2.2:1"));
        assert_eq!(alternating(Vec::new()), []);
    }
}
