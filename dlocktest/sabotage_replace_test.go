package dlocktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var replaceSabotages = []sabotage{
	{"replaces by delete and create", "a store that has no other way, or no transactions",
		on(faults.OpReplace, func(r *request, _ func()) {
			if r.err = r.s.Delete(r.ctx, r.queue, r.place, driver.Changed); r.err != nil {
				return
			}
			var j driver.Joined
			j, r.err = r.s.Create(r.ctx, r.queue, driver.NodeSpec{Prefix: r.prefix, Data: data()})
			r.now = j.Place
		})},
	{"shows no node while it replaces", "deleting and creating the same sequence in two steps",
		func(s *faulty) {
			var replacing atomic.Bool
			s.on(faults.OpReplace, func(_ *request, send func()) {
				replacing.Store(true)
				defer replacing.Store(false)
				time.Sleep(time.Millisecond)
				send()
			})
			s.after(faults.OpList, func(r *request) {
				if replacing.Load() && len(r.nodes) > 0 {
					r.nodes = r.nodes[1:]
				}
			})
		}},
	{"does not find a replaced node by its old place", "a Delete that looks for the name of the place",
		refuses(faults.OpDelete, driver.ErrGone, func(r *request) bool {
			nodes, err := r.s.List(r.ctx, r.queue)
			return err == nil && !has(nodes, r.place.Node)
		})},
	{"finds a replaced node by one old place only", "SQL: a column for the name that the node had before",
		func(s *faulty) {
			var names sync.Map // each replaced node's last two names, by token
			s.after(faults.OpReplace, func(r *request) {
				if r.now.Name != r.place.Name {
					names.Store(r.place.Token, []string{r.place.Name, r.now.Name})
				}
			})
			refuses(faults.OpDelete, driver.ErrGone, func(r *request) bool {
				known, _ := names.Load(r.place.Token)
				return known != nil && !slices.Contains(known.([]string), r.place.Name)
			})(s)
		}},
	{"gives a replaced node another token", "ZooKeeper, etcd: a node that is written anew has the number of a new transaction",
		after(faults.OpReplace, func(r *request) { r.now.Token++ })},
	{"cannot repeat a Replace", "looking for the old name only",
		refuses(faults.OpReplace, driver.ErrGone, func(r *request) bool {
			_, err := r.s.Read(context.WithoutCancel(r.ctx), r.queue, r.place.Name)
			return errors.Is(err, driver.ErrGone) && driver.CheckPrefix(r.prefix) == nil
		})},
}
