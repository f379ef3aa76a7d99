package redisdriver

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// member is an entry of the sorted set in which Redis keeps a queue, in the
// form name/owner/operation/data. Entries written by other programs may have
// only a name.
type member struct{ name, owner, operation, data string }

func parseMember(text string) (m member) {
	parts := strings.SplitN(text, "/", 4)
	for i, field := range []*string{&m.name, &m.owner, &m.operation, &m.data}[:len(parts)] {
		*field = parts[i]
	}
	return m
}

type contender struct {
	driver.Node
	owner string
}

func (m member) contender() (c contender, ok bool) {
	_, seq, ok := driver.ParseName(m.name)
	return contender{driver.Node{Name: m.name, Seq: seq}, m.owner}, ok
}

var errReply = errors.New("redisdriver: the server's reply is not that of the script")

func members(reply any) ([]contender, error) {
	texts, ok := reply.([]any)
	if !ok {
		return nil, errReply
	}
	found := make([]contender, 0, len(texts))
	for _, t := range texts {
		text, ok := t.(string)
		if !ok {
			return nil, errReply
		}
		if c, ok := parseMember(text).contender(); ok {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b contender) int { return cmp.Compare(a.Seq, b.Seq) })
	return found, nil
}
