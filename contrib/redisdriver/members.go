package redisdriver

import (
	"errors"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// member is an entry of a queue's sorted set: name/owner/operation/data. An
// entry by another program may be just a name.
type member struct{ name, owner, operation, data string }

func parseMember(text string) (m member) {
	parts := strings.SplitN(text, "/", 4)
	for i, field := range []*string{&m.name, &m.owner, &m.operation, &m.data}[:len(parts)] {
		*field = parts[i]
	}
	return m
}

var errReply = errors.New("redisdriver: the server's reply is not that of the script")

func (b *backend) nodes(reply any) ([]session.Node, error) {
	texts, ok := reply.([]any)
	if !ok {
		return nil, errReply
	}
	nodes := make([]session.Node, 0, len(texts)+1)
	for _, t := range texts {
		text, ok := t.(string)
		if !ok {
			return nil, errReply
		}
		m := parseMember(text)
		n := session.Node{Name: m.name, Proof: m.operation}
		if m.owner == b.id {
			_, n.Token, _ = driver.ParseName(m.name)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}
