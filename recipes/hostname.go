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

// encodeHostname returns a host name in the form that the names of nodes
// contain. Bytes outside [A-Za-z0-9._-] are percent-encoded, so that different
// host names stay different. The result is cut at 200 bytes, but never within
// an encoded byte.
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
