package dlocktest

import (
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var readCases = []testCase{
	{name: "read-tells-of-a-node", why: "an operator who looks at a queue would see the wrong holder", needs: needRead,
		run: pair(func(c *check, a, b session) {
			p, text := c.createWithData(a, "q", writer)
			q, other := c.createWithData(b, "q", reader)
			mine, theirs := c.read(b, "q", p.Name), c.read(b, "q", q.Name)
			want := func(got driver.NodeInfo, p driver.Place, text string) {
				if got.Node != p.Node || got.Token != p.Token || string(got.Data) != text {
					c.errorf("Read returned %v with token %d and data %q, expected %v, %d and %q as created",
						got.Node, got.Token, got.Data, p.Node, p.Token, text)
				}
			}
			want(mine, p, text)
			want(theirs, q, other)
			if mine.Owner == "" || mine.Owner == theirs.Owner {
				c.errorf("Read returned the owners %q and %q for nodes of two sessions, expected two different ones", mine.Owner, theirs.Owner)
			}
		})},
	{name: "read-of-a-node-that-is-gone-says-so", why: "an operator who looks at a queue would see a holder that is gone",
		needs: needRead, run: solo(func(c *check, s session) {
			p := c.create(s, "q", writer)
			c.delete(s, "q", p)
			for _, queue := range []string{"q", "never/was"} {
				_, err := driver.Inspect(s).Read(c.ctx, queue, p.Name)
				c.wantGone("Read", err)
			}
		})},
	{name: "read-says-whose-node-it-is", why: "a client would take its own node for that of another client, or the other way round", needs: needRead,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.listAfterWrite(b, "q")
			own, other := c.read(a, "q", p.Name), c.read(b, "q", p.Name)
			if own.Foreign {
				c.errorf("Read of a session's own node says that it is foreign")
			}
			if own.Owner != other.Owner {
				c.errorf("Read of one node by two sessions returned the owners %q and %q, expected the same", own.Owner, other.Owner)
			}
			if id := driver.Inspect(a).Describe().ID; id != "" && id != own.Owner {
				c.errorf("Describe says that the session is %q, and Read that its node belongs to %q, expected the same", id, own.Owner)
			}
		})},
	{name: "read-tells-what-is-left-of-the-session", why: "an operator would wait for a dead holder too long, or would take a holder away that is about to end",
		needs: needRead, run: pair(func(c *check, a, b session) {
			// A store that does not know how much is left returns zero.
			p := c.create(a, "q", writer)
			c.listAfterWrite(b, "q")
			for _, reader := range []session{a, b} {
				left, most := c.read(reader, "q", p.Name).SessionLeft, c.config.sessionTimeout()
				if left != 0 && (left < most/20 || left > most) {
					c.errorf("Read returned %v as what is left of a live session, expected more than %v and at most %v, the Config.SessionTimeout, or zero", left, most/20, most)
				}
			}
		})},
	{name: "a-foreign-copy-has-no-owner", why: "a node that another program has forged would pass for the session's own",
		needs: needRead | needRemoveQueue | needPutNode, run: solo(func(c *check, s session) {
			p, text := c.createWithData(s, "q", writer)
			own := c.read(s, "q", p.Name)
			c.removeQueue("q")
			c.putNode("q", p.Name, text)
			c.listAfterWrite(s, "q")
			if info := c.read(s, "q", p.Name); info.Owner == own.Owner {
				c.errorf("Read of a foreign node with the name and data of the session's own returned the owner %q, expected none", info.Owner)
			}
		})},
	{name: "read-takes-foreign-nodes", why: "an operator who looks at a queue has to see all nodes in it",
		needs: needRead | needPutNode, run: solo(func(c *check, s session) {
			c.create(s, "q", writer)
			c.putNode("q", "readme", "no node of a lock")
			if info := c.read(s, "q", "readme"); string(info.Data) != "no node of a lock" || info.Owner != "" || info.SessionLeft != 0 {
				c.errorf("Read of a foreign node returned data %q, owner %q and %v as what is left of its session, expected what it holds and no owner",
					info.Data, info.Owner, info.SessionLeft)
			}
		})},
}

var walkCases = []testCase{
	{name: "walk-finds-queues-at-and-below-a-prefix", why: "an operator who looks for a lock would not find it, or would see others",
		needs: needWalk, run: solo(func(c *check, s session) {
			all := []string{
				"stock", "stock/42", "stock/42/red", "stocks", "stocks/1", "a", "stock-1",
				"order-1234567890", "order-1234567890/order-1234567890~", "order-1234567890~", "orders/1234567890", "orders/web1-W-0000000000~~",
			}
			for _, q := range all {
				c.create(s, q, writer)
			}
			slices.Sort(all)
			for _, prefix := range []string{"/stock", "stock/", "stock//42"} {
				_, err := driver.Inspect(s).Walk(c.ctx, prefix)
				c.wantName(fmt.Sprintf("Walk(%q)", prefix), err)
			}
			for prefix, want := range map[string][]string{
				"":         all,
				"stock":    {"stock", "stock/42", "stock/42/red"},
				"stock/42": {"stock/42", "stock/42/red"},
				"stocks":   {"stocks", "stocks/1"},
				"orders":   {"orders/1234567890", "orders/web1-W-0000000000~~"},

				"order-1234567890":  {"order-1234567890", "order-1234567890/order-1234567890~"},
				"order-1234567890~": {"order-1234567890~"},
				"sto":               nil,
				"none":              nil,
			} {
				if got := c.walk(s, prefix); !slices.Equal(got, want) {
					c.errorf("Walk(%q) returned %q, expected %q", prefix, got, want)
				}
			}
		})},
}

var describeCases = []testCase{
	{name: "describe-returns-the-timeout-that-was-granted",
		why: "logs and hooks would say wrongly for how long the locks of a client outlive its process",
		run: solo(func(c *check, s session) {
			c.wantTimeout(s, "of a new session")
			c.create(s, "q", writer)
			c.wantTimeout(s, "of a session that has made a node")
			c.close(s)
			c.wantTimeout(s, "of a closed session")
		})},
	{name: "describe-tells-sessions-apart", why: "an operator who looks for the session of a log line would find another session",
		run: pair(func(c *check, a, b session) {
			mine, theirs := driver.Inspect(a).Describe().ID, driver.Inspect(b).Describe().ID
			if mine != "" && mine == theirs {
				c.errorf("Describe of two sessions returned the ID %q twice, expected one for each session", mine)
			}
			c.create(a, "q", writer)
			if again := driver.Inspect(a).Describe().ID; again != mine {
				c.errorf("Describe of a session returned the ID %q and then %q, expected the same", mine, again)
			}
		})},
	{name: "heartbeats-tell-what-was-left-of-the-lease",
		why: "an operator would not see before the first loss that the session timeout is too short", run: solo(func(c *check, s session) {
			type heartbeat struct{ left, term time.Duration }
			first := make(chan heartbeat, 1)
			if !driver.Inspect(s).OnHeartbeat(func(left, term time.Duration) {
				select {
				case first <- heartbeat{left, term}:
				default:
				}
			}) {
				return
			}
			c.create(s, "q", writer)
			timeout := c.config.sessionTimeout()
			select {
			case h := <-first:
				// Less than the full term is left, because the lease counts from the
				// time when the heartbeat was sent.
				if h.left <= 0 || h.left >= h.term || h.term >= timeout {
					c.errorf("a heartbeat reported %v left of a term of %v, expected more than zero, less than the term, and a term below the session timeout of %v",
						h.left, h.term, timeout)
				}
			case <-s.Done():
				c.wantAlive(s, "creating a node")
			case <-time.After(timeout):
				c.errorf("OnHeartbeat returned true, and no heartbeat was reported for %v", timeout)
			}
		})},
}

// wantTimeout allows half of Config.SessionTimeout, because the latter includes
// the store's delay in noticing that a session expired.
func (c *check) wantTimeout(s session, when string) {
	got, most := driver.Inspect(s).Describe().Timeout, c.config.sessionTimeout()
	if got != 0 && (got < most/2 || got > most) {
		c.errorf("Describe %s returned the timeout %v, expected %v, the Config.SessionTimeout, or zero if the timeout is not known",
			when, got, most)
	}
}
