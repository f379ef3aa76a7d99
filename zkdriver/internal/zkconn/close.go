package zkconn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var errClosed = errors.New("closed")

const (
	// abandonWait is how long a failed Dial waits for its Conn to shut down.
	abandonWait = 25 * time.Millisecond
	// closeTimeout limits the first attempt to end the session. Later ones may
	// take maxCloseTimeout.
	closeTimeout    = 2 * time.Second
	maxCloseTimeout = 5 * time.Second
	// After closeTimeout, exitTimeout limits how long shutDown waits for
	// go-zookeeper's goroutines to exit.
	exitTimeout = 2 * time.Second
)

// Close ends the session and waits until the Conn has shut down. Even if the
// lease has run out already, Close ends the session in the store, where it may
// still exist. If no server has confirmed the end, the error matches
// driver.ErrUnavailable, and Close can be called again.
func (c *Conn) Close() error {
	c.end(errClosed)
	<-c.finished
	_, err, _ := c.closes.Do("", func() (any, error) { return nil, c.endInStore() })
	return err
}

// shutDown closes go-zookeeper for good. After a Close, it first ends the
// session if possible.
func (c *Conn) shutDown() {
	if c.dialer.sessionID() != 0 && !errors.Is(c.lease.Err(), errClosed) {
		// Holders may not have noticed the end, so let the store keep their nodes.
		c.dialer.close()
	}
	c.awaitContainers()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.client.Close()
		c.dialer.close() // a handshake in flight could revive the session
		for range c.events {
		} // closed when the last goroutine of go-zookeeper exits
	}()
	if !closesWithin(closed, closeTimeout) {
		c.dialer.close() // makes client.Close return
		closesWithin(closed, exitTimeout)
	}
}

func closesWithin(c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// endInStore ends the session on a new connection: go-zookeeper's is closed.
func (c *Conn) endInStore() error {
	if c.endedThere || c.dialer.sessionID() == 0 || c.dialer.sessionClosed.Load() || errors.Is(c.lease.Err(), errExpired) {
		return nil
	}
	// Each attempt prolongs the session, so later ones get more time.
	timeout := min(closeTimeout<<min(c.endAttempts, 2), maxCloseTimeout)
	c.endAttempts++
	if err := c.dialer.endSession(timeout); err != nil {
		return fmt.Errorf("zkdriver: close: %w: no server has confirmed the end of session %#x: its nodes stay, and block others, until the store lets it expire, at most %v after a server has heard of it last: %w",
			driver.ErrUnavailable, uint64(c.dialer.sessionID()), c.dialer.sessionTimeout(), err)
	}
	c.endedThere = true
	return nil
}

// abandon shuts down a Conn that Dial will not return. It waits at most
// abandonWait.
func (c *Conn) abandon() {
	if c.dialer.closeUnlessBegun() {
		c.end(errClosed)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.shutDown()
		c.endInStore()
		c.workers.close()
	}()
	closesWithin(done, abandonWait)
}

// endSession returns an error if no server has confirmed the end.
func (d *dialer) endSession(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var last error
	tries := max(len(d.hosts), min(int(d.round.Load()), 3)) // more would leave each too little time
	for range tries {
		address, _ := d.Next()
		err := d.endSessionAt(ctx, address, timeout/time.Duration(tries))
		if err == nil {
			return nil
		}
		last = fmt.Errorf("%s: %w", address, err)
	}
	return last
}

func (d *dialer) endSessionAt(ctx context.Context, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := d.connectTo(ctx, address)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	c := newFrameConn(raw, d, deadline)
	defer c.Close()
	c.Write(d.reattachRequest()) // sets the deadline; an error fails the read
	frame, err := readHandshake(c.in, connectReplySize)
	if err != nil {
		return err
	}
	switch int64(binary.BigEndian.Uint64(frame[headerSize+8:])) {
	case 0:
		return nil // expired, so the nodes are gone
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

// sendClose sends all requests together, because each round trip counts.
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
