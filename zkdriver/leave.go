package zkdriver

import (
	"context"
	"encoding/binary"
	"errors"
	"time"
)

// leave ends the session on a connection of its own. It is for a connection that broke, or does
// not answer, at the moment of Close, when go-zookeeper makes no other one.
func (l *link) leave(patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range l.hosts {
		address, _ := l.Next()
		if ctx.Err() == nil && l.leaveAt(ctx, address, patience/time.Duration(len(l.hosts))) == nil {
			return true
		}
	}
	return false
}

func (l *link) leaveAt(ctx context.Context, address string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	raw, err := l.connect(ctx, address)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	w := newWire(raw, l, deadline)
	defer w.Close()
	w.Write(l.reattachRequest()) // with which the deadline begins to count
	frame, err := w.readHandshake(replySize)
	if err != nil {
		return err
	}
	switch int64(binary.BigEndian.Uint64(frame[headerSize+8:])) {
	case 0:
		return nil // it has expired, and its nodes are gone
	case l.sessionID():
		return w.sayGoodbye()
	}
	return errors.New("another session")
}

// reattachRequest is the connect request of the session, as a frame.
func (l *link) reattachRequest() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := binary.BigEndian.AppendUint32(nil, uint32(4+8+4+8+4+len(l.password)))
	b = binary.BigEndian.AppendUint32(b, 0) // version of the protocol
	b = binary.BigEndian.AppendUint64(b, 0) // last zxid seen
	b = binary.BigEndian.AppendUint32(b, uint32(l.timeout/time.Millisecond))
	b = binary.BigEndian.AppendUint64(b, uint64(l.session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(l.password)))
	return append(b, l.password...)
}

// sayGoodbye logs in and closes the session.
func (w *wire) sayGoodbye() error {
	if err := w.login(true); err != nil {
		return err
	}
	const xid = 1
	opcode := int32(opClose)
	b := binary.BigEndian.AppendUint32(nil, 4+4)
	b = binary.BigEndian.AppendUint32(b, xid)
	b = binary.BigEndian.AppendUint32(b, uint32(opcode))
	w.Write(b)
	frame, err := w.readHandshake(4 + 8 + 4)
	if err == nil && binary.BigEndian.Uint32(frame[headerSize:]) != xid {
		err = errors.New("no answer to the close request")
	}
	return err
}
