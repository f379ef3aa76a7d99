package zkconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

type connectReply struct {
	timeout  time.Duration
	session  int64
	password []byte
}

// parseConnectReply parses a connect reply. The frame must have at least
// connectReplySize bytes after the header.
func parseConnectReply(frame []byte) (connectReply, error) {
	body := frame[headerSize:]
	if length := int32(binary.BigEndian.Uint32(body[16:])); length != 16 {
		return connectReply{}, fmt.Errorf("a session's password of %d bytes", length)
	}
	return connectReply{
		timeout:  time.Duration(int32(binary.BigEndian.Uint32(body[4:]))) * time.Millisecond,
		session:  int64(binary.BigEndian.Uint64(body[8:])),
		password: body[20:36],
	}, nil
}

// appendLogin appends a request that logs in with the digest scheme.
func appendLogin(b, auth []byte) []byte {
	const scheme = "digest"
	b = binary.BigEndian.AppendUint32(b, uint32(4+4+4+4+len(scheme)+4+len(auth)))
	b = binary.BigEndian.AppendUint32(b, xidAuth&0xffffffff)
	b = binary.BigEndian.AppendUint32(b, opSetAuth)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(scheme)))
	b = append(b, scheme...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(auth)))
	return append(b, auth...)
}

var (
	errLogin     = errors.New("the server refused the login; if its digest scheme is off, use handover=list and no user")
	errSpeaksTLS = errors.New("the port speaks TLS: add tls=true to the dsn, or use the plain port")
	errForeign   = errors.New("the port is not a ZooKeeper client port")
)

// readHandshake reads one frame of the handshake. It returns an error if fewer
// than least bytes follow the frame's header.
func readHandshake(in io.Reader, least int) ([]byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, handshakeError(err)
	}
	length := int(int32(binary.BigEndian.Uint32(head[:])))
	switch {
	case head[0] == 0x15 && head[1] == 0x03: // a TLS alert
		return nil, errSpeaksTLS
	case length < least || length > maxHandshake:
		return nil, errForeign
	}
	frame := make([]byte, headerSize+length)
	copy(frame, head[:])
	if _, err := io.ReadFull(in, frame[headerSize:]); err != nil {
		return nil, handshakeError(err)
	}
	return frame, nil
}

func handshakeError(err error) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer to the connect request: %w", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("the server closed the connection during the handshake; it may be starting, full, without a quorum, or the port may speak TLS: %w", err)
	}
	return err
}
