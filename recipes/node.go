package recipes

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
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

// isReader reports whether the node is a reader's. Nodes of unknown kind count
// as writers, which block everyone.
func isReader(n driver.Node) bool {
	prefix, seq, ok := driver.ParseName(n.Name)
	return ok && seq == n.Seq && strings.HasSuffix(prefix, sharedKind)
}

// The letters in the names of a semaphore's nodes, as in "-S2of5-".
const (
	acquiring = 'S' // of a new node
	settled   = 'H' // of a holder that waited; see settle
)

const maxUnits = 1_000_000

func (u units) kind(letter rune) string { return fmt.Sprintf("-%c%dof%d-", letter, u.weight, u.of) }

func unitsOf(n driver.Node) (u units, ok bool) {
	_, u, ok = cutUnits(n)
	return u, ok
}

func cutUnits(n driver.Node) (host string, u units, ok bool) {
	prefix, seq, ok := driver.ParseName(n.Name)
	if !ok || seq != n.Seq {
		return "", units{}, false
	}
	prefix = prefix[:len(prefix)-1]
	dash := strings.LastIndexByte(prefix, '-')
	if dash < 0 || dash+1 == len(prefix) || prefix[dash+1] != acquiring && prefix[dash+1] != settled {
		return "", units{}, false
	}
	weight, of, _ := strings.Cut(prefix[dash+2:], "of")
	u = units{parseCount(weight), parseCount(of)}
	if u.weight == 0 || u.weight > u.of {
		return "", units{}, false
	}
	return prefix[:dash], u, true
}

// parseCount parses a number of units as dlock writes it, or returns zero.
func parseCount(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxUnits || digits[0] < '1' || digits[0] > '9' {
		return 0
	}
	return n
}

// hostOf returns the host in a node name, or "" for names not made by dlock.
func hostOf(n driver.Node) string {
	prefix, seq, _ := driver.ParseName(n.Name)
	for _, kind := range []string{sharedKind, exclusiveKind} {
		if host, ok := strings.CutSuffix(prefix, kind); ok && seq == n.Seq {
			return host
		}
	}
	host, _, _ := cutUnits(n)
	return host
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

// encodeHostname percent-encodes bytes outside [A-Za-z0-9._-], so that distinct
// host names stay distinct. It cuts long names, but not within an encoded byte.
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

// Record describes the process that created a node, for people inspecting a
// queue. It is stored in the node as a small JSON object.
type Record struct {
	ID      string    `json:"id"`              // random, different for every node
	PID     int       `json:"pid"`             // the process ID
	Program string    `json:"program"`         // the base name of the program
	Since   time.Time `json:"since"`           // when the call began, by the process's clock
	Data    string    `json:"data,omitempty"`  // the data of WithData if it is UTF-8
	Bytes   []byte    `json:"bytes,omitempty"` // the data of WithData otherwise
}

func (r Record) empty() bool {
	return r.ID == "" && r.PID == 0 && r.Program == "" && r.Since.IsZero() && r.Data == "" && r.Bytes == nil
}

// String describes the process on one line. Unprintable text is quoted.
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

// recordTail encodes the part of a record that all nodes of a lock share.
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
		panic(err) // unreachable: such a struct can always be marshalled
	}
	return b[1:]
}

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

// parseRecord parses node data, which any client of the store may have written.
// Invalid data gives an empty Record.
func parseRecord(data []byte) Record {
	var r Record
	if len(data) > maxRecord || json.Unmarshal(data, &r) != nil {
		return Record{}
	}
	return r
}

const maxRecord = 1 << 20
