package zktest

import (
	"fmt"
	"io"
	"net"
	"time"
)

// Session is a server's reply to a connect request.
type Session struct {
	ID      int64
	Passwd  []byte
	Timeout time.Duration
}

// Offsets of the fields in a reply to a connect request.
const (
	replyTimeout  = 4
	replySession  = 8
	replyPassword = 16
)

func parseSession(frame []byte) Session {
	s := Session{
		ID:      int64At(frame, replySession),
		Timeout: time.Duration(int32At(frame, replyTimeout)) * time.Millisecond,
	}
	length := int(int32At(frame, replyPassword))
	from := headerSize + replyPassword + 4
	if length > 0 && from+length <= len(frame) {
		s.Passwd = append([]byte(nil), frame[from:from+length]...)
	}
	return s
}

// Expire ends a session as if it had timed out, and returns when its nodes are
// gone. If passwd is nil, Expire uses [Password]. The client is disconnected,
// and learns of the end when it reconnects.
//
// Expire returns an error if the server does not know the session or the
// password is wrong. A wrong password still disconnects the client.
func Expire(addr string, sessionID int64, passwd []byte) error {
	if passwd == nil {
		passwd = Password(sessionID)
	}
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if err := attach(conn, sessionID, passwd); err != nil {
		return fmt.Errorf("zktest: session %#x: %w", sessionID, err)
	}
	return closeSession(conn)
}

func attach(conn net.Conn, sessionID int64, passwd []byte) error {
	const protocol, lastZxid, timeout = int32(0), int64(0), int32(10_000)
	if err := writeFrame(conn, protocol, lastZxid, timeout, sessionID, passwd); err != nil {
		return err
	}
	reply, err := readFrame(conn)
	if err != nil {
		return err
	}
	if got := parseSession(reply); got.ID != sessionID || got.Timeout == 0 {
		return fmt.Errorf("the server does not know it, or its password is another one")
	}
	return nil
}

func closeSession(conn net.Conn) error {
	const xid = int32(1)
	if err := writeFrame(conn, xid, OpClose); err != nil {
		return err
	}
	for {
		reply, err := readFrame(conn)
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if int32At(reply, 0) == xid { // skip watch events
			return nil
		}
	}
}

// Password returns the password that a ZooKeeper server assigns to a session:
// 16 bytes from java.util.Random, seeded with the ID and a constant in the
// server's source.
func Password(sessionID int64) []byte {
	const superSecret = 0xB3415C00
	random := javaRandom(sessionID ^ superSecret)
	var passwd []byte
	for range 4 {
		n := random()
		passwd = append(passwd, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return passwd
}

// javaRandom returns nextInt of a java.util.Random with the given seed.
func javaRandom(seed int64) func() int32 {
	const multiplier, increment, mask = 0x5DEECE66D, 0xB, 1<<48 - 1
	state := (seed ^ multiplier) & mask
	return func() int32 {
		state = (state*multiplier + increment) & mask
		return int32(state >> 16)
	}
}
