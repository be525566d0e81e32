//! A TCP proxy between a client and the server that can misbehave on demand.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::wait::{eventually, within};

/// How long a forwarding thread waits before it looks at the weather again.
const LOOK: Duration = Duration::from_millis(10);
const CHUNK: usize = 16 * 1024;

/// What the proxy does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Passes everything on.
    Clear,
    /// Passes everything on, late.
    Delay(Duration),
    /// Passes on so many bytes a second in each direction of each connection.
    Slow(u32),
    /// Swallows what clients send; replies still pass.
    DropRequests,
    /// Swallows what the server sends; requests still pass.
    DropReplies,
    /// Swallows everything, keeps connections open, accepts new ones.
    BlackHole,
    /// Keeps everything back, and passes it on when the weather clears: a partition, as TCP sees it.
    Hold,
    /// Ends connections towards the server and leaves clients in the belief that they stand, also
    /// when the weather has cleared.
    HalfOpen,
    /// Cuts every connection, refuses new ones.
    Cut,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    weather: Mutex<Weather>,
    over: AtomicBool,
    /// How often open connections were forgotten.
    forgotten: AtomicUsize,
    /// How many threads forward or are about to.
    forwarding: AtomicUsize,
}

/// One thread that forwards, for as long as it does.
struct Forwarding(Arc<Shared>);

impl Forwarding {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.forwarding.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.0.forwarding.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy)]
enum Way {
    Request,
    Reply,
}

impl Proxy {
    /// Starts a proxy to `target`, such as `http://127.0.0.1:8080`.
    ///
    /// # Panics
    ///
    /// When the address cannot be read or no port is free.
    #[must_use]
    pub fn to(target: &str) -> Self {
        let target = target.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener that can be stopped");
        let address = listener.local_addr().expect("its address");
        let weather = Mutex::new(Weather::Clear);
        let target = Mutex::new(target);
        let (over, forwarding) = (AtomicBool::new(false), AtomicUsize::new(0));
        let forgotten = AtomicUsize::new(0);
        let shared = Arc::new(Shared { target, weather, over, forgotten, forwarding });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Returns the URL to give to clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Leads new connections to another target, as a load balancer does.
    ///
    /// # Panics
    ///
    /// When the address cannot be read.
    pub fn lead_to(&self, target: &str) {
        let target = target.trim_start_matches("http://").parse().expect("an address");
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// Passes nothing on any more on connections that are open, and keeps them open. New ones work.
    pub fn forget(&self) {
        self.shared.forgotten.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes the weather, for open connections as well. After [`Weather::Cut`] none is left:
    /// a thread that saw only the weather that comes next would go on with what it had lost.
    ///
    /// # Panics
    ///
    /// When a connection outlives the cut.
    pub fn set(&self, weather: Weather) {
        *self.shared.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
        if weather == Weather::Cut {
            eventually("every connection is cut", within(LOOK), || {
                (self.shared.forwarding.load(Ordering::SeqCst) == 0).then_some(())
            });
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            // A panic of that thread was printed already.
            let _joined = acceptor.join();
        }
    }
}

impl Shared {
    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.is_over() {
        let Ok((client, _)) = listener.accept() else {
            thread::sleep(LOOK);
            continue;
        };
        // Before it looks at the weather: a cut waits for it.
        let accepting = Forwarding::begin(shared);
        if shared.weather() == Weather::Cut {
            continue;
        }
        let target = *shared.target.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(server) = TcpStream::connect(target) else { continue };
        for (from, to, way) in [(&client, &server, Way::Request), (&server, &client, Way::Reply)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
            let forwarding = Forwarding::begin(shared);
            thread::spawn(move || forward(from, to, way, &forwarding.0));
        }
        drop(accepting);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, way: Way, shared: &Shared) {
    let mut chunk = vec![0; CHUNK];
    let prepared = from.set_nonblocking(false).and_then(|()| from.set_read_timeout(Some(LOOK)));
    let (mut severed, known) = (false, shared.forgotten.load(Ordering::SeqCst));
    while prepared.is_ok() && !shared.is_over() && shared.weather() != Weather::Cut {
        severed |= shared.weather() == Weather::HalfOpen;
        if severed {
            let server = if matches!(way, Way::Request) { &to } else { &from };
            // The other direction's thread may have done it.
            let _closed = server.shutdown(Shutdown::Both);
        }
        let forgotten = shared.forgotten.load(Ordering::SeqCst) != known;
        if severed || forgotten || shared.weather() == Weather::Hold {
            thread::sleep(LOOK);
            continue;
        }
        let read = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if is_timeout(&error) => continue,
            Err(_) => break,
        };
        let passes = match (shared.weather(), way) {
            (Weather::Clear, _)
            | (Weather::DropRequests, Way::Reply)
            | (Weather::DropReplies, Way::Request) => true,
            (Weather::Delay(delay), _) => {
                thread::sleep(delay);
                true
            }
            (Weather::Slow(rate), _) => {
                let read = u32::try_from(read).unwrap_or(u32::MAX);
                thread::sleep(Duration::from_secs(1) * read / rate);
                true
            }
            (Weather::DropRequests | Weather::DropReplies | Weather::BlackHole, _) => false,
            // What was read just before waits here, so that nothing is lost.
            (Weather::Hold, _) => {
                while shared.weather() == Weather::Hold && !shared.is_over() {
                    thread::sleep(LOOK);
                }
                true
            }
            (Weather::HalfOpen, _) => false,
            (Weather::Cut, _) => break,
        };
        if passes && to.write_all(&chunk[..read]).is_err() {
            break;
        }
    }
    // Either side may be gone already.
    let _closed = from.shutdown(Shutdown::Both);
    let _closed = to.shutdown(Shutdown::Both);
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a byte through the proxy to an echo and tells whether it comes back.
    fn echoes(weather: Weather) -> bool {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::to(&echo.local_addr().unwrap().to_string());
        thread::spawn(move || {
            let (mut stream, _) = echo.accept().unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        });
        proxy.set(weather);
        let mut client = TcpStream::connect(proxy.address).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut byte = [7];
        client.write_all(&byte).is_ok() && client.read_exact(&mut byte).is_ok()
    }

    /// A cut that was over at once was once seen by no thread, and what had been lost on a
    /// connection was missing in the middle of it.
    #[test]
    fn no_connection_outlives_a_cut_however_short() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::to(&echo.local_addr().unwrap().to_string());
        let mut client = TcpStream::connect(proxy.address).unwrap();
        let (mut server, _) = echo.accept().unwrap();
        proxy.set(Weather::Cut);
        proxy.set(Weather::Clear);
        server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut byte = [0];
        assert!(client.write_all(&[7]).is_err() || !matches!(server.read(&mut byte), Ok(1)));
    }

    #[test]
    fn the_weather_decides_what_comes_through() {
        assert!(echoes(Weather::Clear));
        assert!(echoes(Weather::Delay(Duration::from_millis(20))));
        assert!(echoes(Weather::Slow(1000)));
        for weather in [
            Weather::DropRequests,
            Weather::DropReplies,
            Weather::BlackHole,
            Weather::Hold,
            Weather::HalfOpen,
            Weather::Cut,
        ] {
            assert!(!echoes(weather), "{weather:?}");
        }
    }
}
