package zkconn

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// endSession ends the session in the store over a new connection. It is used
// when go-zookeeper is closed or its connection does not answer. The error says
// why no server has confirmed the end.
func (d *dialer) endSession(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	secure, err := d.config.TLS.load() // the files may have been replaced since Dial
	if err != nil {
		return err
	}
	var last error
	tries := max(len(d.hosts), min(int(d.round.Load()), 3)) // more addresses would leave too little time for each
	for range tries {
		address, _ := d.Next()
		err := d.endSessionAt(ctx, address, secure, timeout/time.Duration(tries))
		if err == nil {
			return nil
		}
		last = fmt.Errorf("%s: %w", address, err)
	}
	return last
}

func (d *dialer) endSessionAt(ctx context.Context, address string, secure *tls.Config, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := d.connectTo(ctx, address, secure)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	c := newFrameConn(raw, d, deadline)
	defer c.Close()
	c.Write(d.reattachRequest()) // sets the connection's deadline; if it fails, so does the read below
	frame, err := readHandshake(c.in, connectReplySize)
	if err != nil {
		return err
	}
	switch int64(binary.BigEndian.Uint64(frame[headerSize+8:])) {
	case 0:
		return nil // the session has expired, and its nodes are gone
	case d.sessionID():
		return sendClose(c)
	}
	return errors.New("another session")
}

func (d *dialer) reattachRequest() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := binary.BigEndian.AppendUint32(nil, uint32(4+8+4+8+4+len(d.password)))
	b = binary.BigEndian.AppendUint32(b, 0) // protocol version
	b = binary.BigEndian.AppendUint64(b, 0) // last zxid seen by the client: none
	b = binary.BigEndian.AppendUint32(b, uint32(d.timeout/time.Millisecond))
	b = binary.BigEndian.AppendUint64(b, uint64(d.session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(d.password)))
	return append(b, d.password...)
}

// sendClose logs in and closes the session. It sends all requests before it
// waits for answers, because on a slow network each round trip counts.
func sendClose(c *frameConn) error {
	if err := c.login(false); err != nil {
		return err
	}
	const xid = 1
	opcode := int32(opClose)
	b := binary.BigEndian.AppendUint32(nil, 4+4)
	b = binary.BigEndian.AppendUint32(b, xid)
	b = binary.BigEndian.AppendUint32(b, uint32(opcode))
	c.Write(b)
	for {
		frame, err := readHandshake(c.in, 4+8+4)
		if err != nil {
			return err
		}
		failed := binary.BigEndian.Uint32(frame[headerSize+12:]) != 0
		switch int32(binary.BigEndian.Uint32(frame[headerSize:])) {
		case xid:
			return nil
		case xidAuth:
			if failed {
				return errLogin
			}
		default:
			return errors.New("no answer to the close request")
		}
	}
}
