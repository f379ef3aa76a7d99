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
	trailerStart   = "\n#dlock "
	trailerGuarded = "guarded"
)

// trailer is what the last line says; zeros say that the node's own Stat holds.
type trailer struct {
	guarded bool
	token   int64
	created int64 // milliseconds since 1970, as in a Stat
}

// stored returns data as it is stored by Create.
func (s *session) stored(data []byte) []byte { return withTrailer(data, s.secret.set()) }

func withTrailer(data []byte, guarded bool) []byte {
	if _, _, marked := splitTrailer(data); marked || guarded {
		return appendTrailer(data, trailer{guarded: guarded})
	}
	return data
}

// appendTrailer adds the line.
func appendTrailer(data []byte, e trailer) []byte {
	line := e.text()
	return append(append(make([]byte, 0, len(data)+len(line)), data...), line...)
}

func (e trailer) text() string {
	if e.guarded {
		return trailerStart + trailerGuarded
	}
	return fmt.Sprintf("%stoken=%d created=%d", trailerStart, e.token, e.created)
}

// splitTrailer takes the line off stored data.
func splitTrailer(stored []byte) (data []byte, e trailer, marked bool) {
	i := bytes.LastIndex(stored, []byte(trailerStart))
	if i < 0 {
		return stored, trailer{}, false
	}
	line := string(stored[i:])
	if line == trailerStart+trailerGuarded {
		return stored[:i], trailer{guarded: true}, true
	}
	token, created, _ := strings.Cut(strings.TrimPrefix(line, trailerStart+"token="), " created=")
	e.token, _ = strconv.ParseInt(token, 10, 64)
	e.created, _ = strconv.ParseInt(created, 10, 64)
	if e.token < 0 || e.created < 0 || e.text() != line {
		return stored, trailer{}, false
	}
	return stored[:i], e, true
}
