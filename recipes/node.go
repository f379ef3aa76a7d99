package recipes

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dlock-go/dlock/driver"
)

const (
	sharedKind    = "-R-"
	exclusiveKind = "-W-"
)

// isReader reports whether a listed node is a reader's. It reads the name from
// the right, because the host name may itself look like a kind and a sequence.
// Any other node counts as a writer's, so that no contender is granted the lock
// beside a node of unknown kind.
func isReader(n driver.Node) bool {
	prefix, seq, ok := driver.ParseName(n.Name)
	return ok && seq == n.Seq && strings.HasSuffix(prefix, sharedKind)
}

// hostOf returns the host in the name of a listed node, or an empty string if
// dlock does not make such names.
func hostOf(n driver.Node) string {
	prefix, seq, _ := driver.ParseName(n.Name)
	for _, kind := range []string{sharedKind, exclusiveKind} {
		if host, ok := strings.CutSuffix(prefix, kind); ok && seq == n.Seq {
			return host
		}
	}
	return ""
}

const (
	maxHostname     = 200
	unknownHostname = "unknown"
)

var systemHostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return unknownHostname
	}
	return encodeHostname(name)
})

// encodeHostname percent-encodes bytes outside [A-Za-z0-9._-], so that
// different host names stay different. It cuts the result at 200 bytes, but
// never within an encoded byte.
func encodeHostname(name string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
		switch {
		case plain && b.Len()+1 <= maxHostname:
			b.WriteByte(c)
		case !plain && b.Len()+3 <= maxHostname:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		default:
			return b.String()
		}
	}
	if b.Len() == 0 {
		return unknownHostname
	}
	return b.String()
}

// Record is what a node says of the process that made it, for people who look
// at a queue. The store keeps the record as a small JSON object.
type Record struct {
	ID      string    `json:"id"`              // random, and different in every node
	PID     int       `json:"pid"`             // the number of the process
	Program string    `json:"program"`         // the base name of the program
	Since   time.Time `json:"since"`           // when the process began to contend, by its clock
	Data    string    `json:"data,omitempty"`  // the data of WithData if it is UTF-8
	Bytes   []byte    `json:"bytes,omitempty"` // the data of WithData otherwise
}

func (r Record) empty() bool {
	return r.ID == "" && r.PID == 0 && r.Program == "" && r.Since.IsZero() && r.Data == "" && r.Bytes == nil
}

// String returns one line for people; see [Contender.String].
func (r Record) String() string {
	line := fmt.Sprintf("pid %d, program %s, since %s", r.PID, printable(r.Program), r.Since.Format(time.RFC3339Nano))
	switch {
	case r.Data != "":
		line += ", data " + printable(r.Data)
	case len(r.Bytes) > 0:
		line += ", data " + printable(string(r.Bytes))
	}
	return line
}

// recordTail returns the part of a record that all nodes of a lock share.
func recordTail(data []byte) []byte {
	r := struct {
		PID     int    `json:"pid"`
		Program string `json:"program"`
		Data    string `json:"data,omitempty"`
		Bytes   []byte `json:"bytes,omitempty"`
	}{PID: os.Getpid(), Program: filepath.Base(os.Args[0])}
	if utf8.Valid(data) {
		r.Data = string(data)
	} else {
		r.Bytes = data
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // this never happens, because a struct of numbers, strings and bytes can be marshalled
	}
	return b[1:]
}

// newRecord returns the data of a node of a call that began at now.
func newRecord(now time.Time, tail []byte) []byte {
	b := make([]byte, 0, 96+len(tail))
	b = append(b, `{"id":"`...)
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	b = hex.AppendEncode(b, id[:])
	b = append(b, `","since":"`...)
	b = now.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `",`...)
	return append(b, tail...)
}

// parseRecord reads data that any client of the store may have written. Data
// that is no record gives an empty Record.
func parseRecord(data []byte) Record {
	var r Record
	if len(data) > maxRecord || json.Unmarshal(data, &r) != nil {
		return Record{}
	}
	return r
}

// maxRecord is the greatest length of node data that is parsed, in bytes.
const maxRecord = 1 << 20
