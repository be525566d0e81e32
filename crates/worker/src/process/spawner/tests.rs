use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::os::fd::{AsFd as _, BorrowedFd};

use super::handle::request;
use super::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

fn link() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn received(spawner: &OwnedFd) -> Request {
    match receive(spawner).unwrap() {
        Received::Request(request) => request,
        Received::Unusable => panic!("unusable"),
        Received::EngineGone => panic!("the engine is gone"),
    }
}

#[test]
fn a_request_brings_its_label_and_its_descriptors_in_their_order() {
    let (engine, spawner) = link();
    let pipes: Vec<(PipeReader, PipeWriter)> = (0..4).map(|_| pipe().unwrap()).collect();
    let descriptors: Vec<BorrowedFd<'_>> = pipes.iter().map(|(_, end)| end.as_fd()).collect();
    request(&engine, "job-1", &descriptors).unwrap();
    let Request { label, socket, stdio, warm } = received(&spawner);
    assert!(label == b"job-1\0" && warm.is_none());
    let [stdin, stdout, stderr] = stdio;
    for (number, end) in (b'0'..).zip([socket, stdin, stdout, stderr]) {
        std::fs::File::from(end).write_all(&[number]).unwrap();
    }
    for (number, (mut reader, writer)) in (b'0'..).zip(pipes) {
        drop(writer);
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(text, [number], "no other process has it open");
    }
}

#[test]
fn requests_are_told_apart_and_the_end_comes_after_the_last() {
    let (engine, spawner) = link();
    let null = std::fs::File::open("/dev/null").unwrap();
    for label in ["first", "", "third"] {
        request(&engine, label, &[null.as_fd(); 4]).unwrap();
    }
    drop(engine);
    for label in [b"first\0".as_slice(), b"\0", b"third\0"] {
        assert_eq!(received(&spawner).label, label);
    }
    assert!(matches!(receive(&spawner).unwrap(), Received::EngineGone));
}

#[test]
fn a_label_that_is_too_long_is_cut_and_still_ends() {
    let (engine, spawner) = link();
    let null = std::fs::File::open("/dev/null").unwrap();
    request(&engine, &"x".repeat(1000), &[null.as_fd(); 4]).unwrap();
    let label = received(&spawner).label;
    assert_eq!(label.len(), LABEL_BYTES_MAX);
    assert_eq!(label.last(), Some(&0));
}

#[test]
fn the_socket_of_a_warm_process_comes_last() {
    let (engine, spawner) = link();
    let null = std::fs::File::open("/dev/null").unwrap();
    let (mut reader, writer) = pipe().unwrap();
    let [socket, stdin, stdout, stderr] = [null.as_fd(); 4];
    request(&engine, "job", &[socket, stdin, stdout, stderr, writer.as_fd()]).unwrap();
    drop(writer);
    let mut warm = std::fs::File::from(received(&spawner).warm.unwrap());
    warm.write_all(b"warm").unwrap();
    drop(warm);
    let mut text = Vec::new();
    reader.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"warm");
}

#[test]
fn a_message_without_all_descriptors_is_no_request() {
    let (engine, spawner) = link();
    rustix::net::send(&engine, b"job\0", rustix::net::SendFlags::empty()).unwrap();
    assert!(matches!(receive(&spawner).unwrap(), Received::Unusable));
}
