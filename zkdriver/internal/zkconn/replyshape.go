package zkconn

import (
	"encoding/binary"
	"fmt"
)

// go-zookeeper trusts what a server sends. A malformed reply may make it
// allocate all memory, or panic on its own goroutine, which ends the process.
// So frameConn rejects malformed replies.

// checkShape returns an error if reply is not a well-formed reply to a request
// with the given opcode. reply does not include the length field.
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

func checkEvent(event []byte) error {
	r := replyShape{rest: event[replyStart:]}
	r.skip(4 + 4)
	r.text()
	if r.wrong {
		return fmt.Errorf("an event of the wrong shape")
	}
	return nil
}

// replyShape parses a reply to check its structure. Once wrong is set, it stays
// set.
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

// skip returns the next n bytes, or nil if there are fewer.
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

func (r *replyShape) bytes() {
	if n := r.number(); n > 0 {
		r.skip(int(n))
	}
}

// each parses a list by calling item for each element. size is the minimum size
// of an element in bytes, which limits the number of elements that the reply
// may announce.
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
