package zkdriver

import (
	"bytes"
	"fmt"
	"strconv"
)

// A node that was replaced has another Czxid than the one that is its token. So its data gets a
// last line that says which token it is, and when the first node was made:
//
//	#dlock token=4294967301 created=1700000000000
//
// It is a line of text below the data so that people can read it. Data which by itself ends in
// such a line gets another one, with zeros, when it is created, so that opening takes off
// exactly what sealing and resealing added.

const envelopeMark = "\n#dlock token="

// envelope is what the last line says; zeros say that the node's own Stat holds.
type envelope struct {
	token   int64
	created int64 // milliseconds since 1970, as in a Stat
}

// seal returns data as it is stored by Create.
func seal(data []byte) []byte {
	if _, _, marked := open(data); marked {
		return reseal(data, envelope{})
	}
	return data
}

// reseal adds the line.
func reseal(data []byte, e envelope) []byte {
	return append(bytes.Clone(data), e.line()...)
}

func (e envelope) line() string {
	return fmt.Sprintf("%s%d created=%d", envelopeMark, e.token, e.created)
}

// open takes the line off stored data.
func open(stored []byte) (data []byte, e envelope, marked bool) {
	i := bytes.LastIndex(stored, []byte(envelopeMark))
	if i < 0 {
		return stored, envelope{}, false
	}
	token, created, found := bytes.Cut(stored[i+len(envelopeMark):], []byte(" created="))
	if !found {
		return stored, envelope{}, false
	}
	e.token, _ = strconv.ParseInt(string(token), 10, 64)
	e.created, _ = strconv.ParseInt(string(created), 10, 64)
	if e.token < 0 || e.created < 0 || e.line() != string(stored[i:]) {
		return stored, envelope{}, false
	}
	return stored[:i], e, true
}
