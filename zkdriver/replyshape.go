package zkdriver

import (
	"encoding/binary"
	"fmt"
)

// go-zookeeper takes what a server says on trust: a reply that is too short for what it should
// hold, or that announces more than it holds, ends the process (a panic on a goroutine of
// go-zookeeper's, or all memory). So no reply gets there whose shape is wrong.

// Numbers of ZooKeeper's protocol: requests that this driver sends, and parts of the reply to a
// Multi.
const (
	opCreate          = 1
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opGetACL          = 6
	opSetACL          = 7
	opSync            = 9
	opPing            = 11
	opGetChildren     = 12 // the one that returns the Stat too
	opCheck           = 13
	opMulti           = 14
	opCreateContainer = 19
	opError           = -1

	xidEvent   = -1
	statSize   = 6*8 + 5*4
	replyStart = 16 // xid, zxid, error
)

// checkShape looks at a reply, without its length in front, to a request with that opcode.
func checkShape(opcode int32, reply []byte) error {
	if len(reply) < replyStart {
		return fmt.Errorf("a reply of %d bytes", len(reply))
	}
	failed := int32(binary.BigEndian.Uint32(reply[12:])) != 0
	r := replyShape{rest: reply[replyStart:]}
	if !failed {
		r.reply(opcode)
	}
	if r.wrong {
		return fmt.Errorf("a reply of the wrong shape to request %d", opcode)
	}
	return nil
}

// checkEvent is checkShape for what a watch sends.
func checkEvent(event []byte) error {
	r := replyShape{rest: event[replyStart:]}
	r.skip(4 + 4)
	r.text()
	if r.wrong {
		return fmt.Errorf("an event of the wrong shape")
	}
	return nil
}

// replyShape reads through a reply. Once something is wrong it stays so.
type replyShape struct {
	rest  []byte
	wrong bool
}

func (r *replyShape) reply(opcode int32) {
	switch opcode {
	case opCreate, opCreateContainer, opSync:
		r.text()
	case opExists, opSetACL:
		r.skip(statSize)
	case opGetData:
		r.bytes()
		r.skip(statSize)
	case opGetChildren:
		r.each(4, r.text)
		r.skip(statSize)
	case opGetACL:
		r.each(4+4+4, func() { r.skip(4); r.text(); r.text() })
		r.skip(statSize)
	case opMulti:
		r.multi()
	case opDelete, opPing, opSetAuth, opSetWatches, opClose:
	default:
		r.wrong = true
	}
}

func (r *replyShape) multi() {
	for !r.wrong {
		kind := r.number()
		done := r.skip(1)
		r.skip(4)
		if len(done) == 1 && done[0] != 0 {
			return
		}
		switch kind {
		case opError:
			r.skip(4)
		case opCreate:
			r.text()
		case opSetData:
			r.skip(statSize)
		case opCheck, opDelete:
		default:
			r.wrong = true
		}
	}
}

// skip returns the next n bytes, or nothing if there are not so many.
func (r *replyShape) skip(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.wrong, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *replyShape) number() int32 {
	if b := r.skip(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *replyShape) text() { r.skip(int(r.number())) }

// bytes may be absent, which a negative length says.
func (r *replyShape) bytes() {
	if n := r.number(); n > 0 {
		r.skip(int(n))
	}
}

// each reads through a list whose items have at least that size.
func (r *replyShape) each(size int, item func()) {
	n := int(r.number())
	if n < 0 || n > len(r.rest)/size {
		r.wrong = true
	}
	for range n {
		if r.wrong {
			return
		}
		item()
	}
}
