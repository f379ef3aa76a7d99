package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// The methods below read the store with a session that no fault hits.

func (r *run) nodes(queue string) []driver.Node {
	nodes, err := r.judgeSession.List(context.Background(), queue)
	if err != nil {
		panic(err)
	}
	return nodes
}

func (r *run) info(queue, name string) (driver.NodeInfo, bool) {
	info, err := driver.Inspect(r.judgeSession).Read(context.Background(), queue, name)
	if err != nil && !errors.Is(err, driver.ErrGone) {
		panic(err)
	}
	return info, err == nil
}

func (r *run) stands(queue string, token int64) (name string, is bool) {
	for _, n := range r.nodes(queue) {
		if info, there := r.info(queue, n.Name); there && info.Token == token {
			return n.Name, true
		}
	}
	return "", false
}

// contendsWith reports whether the call created the node. An older call's
// Create may arrive late.
func contendsWith(call *attempt, info driver.NodeInfo) bool {
	var record recipes.Record
	return json.Unmarshal(info.Data, &record) == nil && !record.Since.Before(call.began)
}

func (r *run) ownerOf(info driver.NodeInfo) *actor {
	var record recipes.Record
	if err := json.Unmarshal(info.Data, &record); err != nil {
		panic(fmt.Sprintf("a node without a record: %v", err))
	}
	for _, a := range r.actors {
		if a.String() == record.Data {
			return a
		}
	}
	panic("a node of no actor: " + record.Data)
}

func isWriter(name string) bool { return !strings.Contains(name, "-R-") }
