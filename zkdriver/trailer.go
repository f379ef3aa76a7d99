package zkdriver

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// The driver records facts about a node in the last line of its data, the
// trailer, as text that operators can read. It is one of
//
//	#dlock guarded
//	#dlock token=4294967301 created=1700000000000
//
// The first says that only the node's session can write to the node: see
// acl.go. The second marks a node that Replace made in place of an older one.
// Because the new node has its own Czxid and Ctime, the trailer records the
// token that Create returned and the time at which Create made the node.
//
// If there is nothing to record, but the last line of the caller's data looks
// like a trailer, the driver appends a trailer with zeros, so that splitTrailer
// removes exactly what was appended.

const (
	trailerStart   = "\n#dlock "
	trailerGuarded = "guarded"
)

// trailer holds the facts from a node's trailer. If token is zero, the node's
// Stat has the token and the creation time.
type trailer struct {
	guarded bool
	token   int64
	created int64 // milliseconds since 1970, as in a Stat
}

func withTrailer(data []byte, guarded bool) []byte {
	if _, _, found := splitTrailer(data); found || guarded {
		return appendTrailer(data, trailer{guarded: guarded})
	}
	return data
}

func appendTrailer(data []byte, t trailer) []byte {
	text := t.text()
	return append(append(make([]byte, 0, len(data)+len(text)), data...), text...)
}

func (t trailer) text() string {
	if t.guarded {
		return trailerStart + trailerGuarded
	}
	return fmt.Sprintf("%stoken=%d created=%d", trailerStart, t.token, t.created)
}

func splitTrailer(stored []byte) (data []byte, t trailer, found bool) {
	i := bytes.LastIndex(stored, []byte(trailerStart))
	if i < 0 {
		return stored, trailer{}, false
	}
	text := string(stored[i:])
	if text == trailerStart+trailerGuarded {
		return stored[:i], trailer{guarded: true}, true
	}
	token, created, _ := strings.Cut(strings.TrimPrefix(text, trailerStart+"token="), " created=")
	t.token, _ = strconv.ParseInt(token, 10, 64)
	t.created, _ = strconv.ParseInt(created, 10, 64)
	if t.token < 0 || t.created < 0 || t.text() != text {
		return stored, trailer{}, false
	}
	return stored[:i], t, true
}
