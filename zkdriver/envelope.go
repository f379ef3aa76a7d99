package zkdriver

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// What the driver has to say of a node stands in a last line below its data, as text, so that
// people can read it. One of
//
//	#dlock guarded
//	#dlock token=4294967301 created=1700000000000
//
// The first says that only its session can write to the node: see secret. The second is of a
// node that was replaced, which has another Czxid than the one that is its token: so it
// says which token it is, and when the first node was made.
//
// Where neither is to be said, data which by itself ends in such a line gets another one, with
// zeros, so that opening takes off exactly what sealing and resealing added.

const (
	envelopeMark = "\n#dlock "
	guardedMark  = "guarded"
)

// envelope is what the last line says; zeros say that the node's own Stat holds.
type envelope struct {
	guarded bool
	token   int64
	created int64 // milliseconds since 1970, as in a Stat
}

// seal returns data as it is stored by Create.
func (s *session) seal(data []byte) []byte { return seal(data, s.secret.set()) }

func seal(data []byte, guarded bool) []byte {
	if _, _, marked := open(data); marked || guarded {
		return reseal(data, envelope{guarded: guarded})
	}
	return data
}

// reseal adds the line.
func reseal(data []byte, e envelope) []byte {
	line := e.line()
	return append(append(make([]byte, 0, len(data)+len(line)), data...), line...)
}

func (e envelope) line() string {
	if e.guarded {
		return envelopeMark + guardedMark
	}
	return fmt.Sprintf("%stoken=%d created=%d", envelopeMark, e.token, e.created)
}

// open takes the line off stored data.
func open(stored []byte) (data []byte, e envelope, marked bool) {
	i := bytes.LastIndex(stored, []byte(envelopeMark))
	if i < 0 {
		return stored, envelope{}, false
	}
	line := string(stored[i:])
	if line == envelopeMark+guardedMark {
		return stored[:i], envelope{guarded: true}, true
	}
	token, created, _ := strings.Cut(strings.TrimPrefix(line, envelopeMark+"token="), " created=")
	e.token, _ = strconv.ParseInt(token, 10, 64)
	e.created, _ = strconv.ParseInt(created, 10, 64)
	if e.token < 0 || e.created < 0 || e.line() != line {
		return stored, envelope{}, false
	}
	return stored[:i], e, true
}
