package recipes

import (
	"os"
	"strings"
	"sync"
)

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

// encodeHostname makes a host name fit for the name of a node: bytes outside [A-Za-z0-9._-] are
// percent-encoded, so that different names stay different, and what is longer than 200 bytes is
// cut, never within an encoded byte.
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
