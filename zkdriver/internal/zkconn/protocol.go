package zkconn

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Numbers of ZooKeeper's protocol.
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
	opGetChildren     = 12 // ZooKeeper's GetChildren2, with a Stat in the reply
	opCheck           = 13
	opMulti           = 14
	opCreateContainer = 19
	opSetAuth         = 100
	opSetWatches      = 101
	opClose           = -11
	opError           = -1 // occurs only in the reply to a Multi

	xidEvent = -1
	xidPing  = -2
	xidAuth  = -4

	codeAuth = -115 // refuses a login

	headerSize = 4 // the field with the length of a frame
	// connectReplySize is the minimum length of a connect reply, whose password
	// has 16 bytes.
	connectReplySize = 4 + 4 + 8 + 4 + 16
	// replyStart is the size of xid, zxid and error, which begin each reply.
	replyStart = 16
	statSize   = 6*8 + 5*4

	// Offsets of zxids in frames.
	replyZxid      = headerSize + 4
	connectZxid    = headerSize + 4
	setWatchesZxid = headerSize + 8
)

const (
	// maxHandshake is far above the length of any handshake reply.
	maxHandshake = 4096
	// maxReply is far above the length of any reply the driver asks for.
	maxReply = 256 << 20
)

// A malformed reply could make go-zookeeper panic or allocate all memory, so
// frameConn rejects it.

// checkShape returns an error if the reply, without its length, is malformed
// for the opcode.
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

// replyShape parses a reply. If the reply is malformed, wrong becomes true.
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
		kind := r.integer()
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

func (r *replyShape) integer() int32 {
	if b := r.skip(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *replyShape) text() { r.skip(int(r.integer())) }

func (r *replyShape) bytes() {
	if n := r.integer(); n > 0 {
		r.skip(int(n))
	}
}

// each parses a list. The minimum size of an element limits how many fit.
func (r *replyShape) each(size int, item func()) {
	n := int(r.integer())
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

// maxPrinted is the length in bytes above which Printable shortens a text.
const maxPrinted = 1024

// Printable makes s safe to print in an error. Other clients choose the names
// of their nodes, so Printable shortens a long name, and quotes one that has
// unprintable characters.
func Printable(s string) string {
	if len(s) > maxPrinted {
		const end = 32 // bytes at the end, with a node's sequence
		return fmt.Sprintf("%q...%q (%d bytes)", s[:maxPrinted-end], s[len(s)-end:], len(s))
	}
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// printableError wraps an error with foreign text, such as a name in a
// certificate.
type printableError struct{ error }

// Error escapes unprintable characters and shortens a long text.
func (e printableError) Error() string {
	text := e.error.Error()
	var b strings.Builder
	for i, r := range text {
		if b.Len() > 4*maxPrinted {
			return b.String() + "... (" + strconv.Itoa(len(text)) + " bytes)"
		}
		if strconv.IsPrint(r) {
			b.WriteString(text[i : i+len(string(r))])
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

func (e printableError) Unwrap() error { return e.error }
