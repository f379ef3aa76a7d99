package sqlstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// MostToken is the greatest token that fits into a node name.
const MostToken int64 = 1e18 - 1

const moreGrace = "give all clients the same parameter grace, at least their longest session_timeout"

// Graced is called by each new session. It records the longest grace of all
// sessions, and warns once if the client's own grace is shorter.
func (p *Pool) Graced(ctx context.Context, name string, once *sync.Once, own, longest time.Duration) {
	if p.longest = longest; own < longest {
		once.Do(func() {
			slog.Default().WarnContext(ctx, name+": other clients of the database have a longer grace: "+moreGrace, "own", own, "longest", longest)
		})
	}
}

// LongOpen is the age at which Check reports an open transaction. Tests set it.
var LongOpen = time.Minute

// Check makes the checks that the drivers share. The argument own is the
// client's own grace, and left is how many more connections the server accepts.
// The function oldest reads, for the oldest open transaction, the connection ID
// and the age in seconds. It fails if the user may not see transactions.
func (p *Pool) Check(own time.Duration, left int, oldest func(row func(scan func(...any) error) error) error) (found []driver.Finding) {
	warn := func(advice, text string, args ...any) {
		found = append(found, driver.Finding{Level: driver.Warning, Text: fmt.Sprintf(text, args...), Advice: advice})
	}
	if own < p.longest {
		warn(moreGrace+"; a grace is forgotten with its last session",
			"a session has a grace of %v: after a fail-over, nobody gets a lock for that long", p.longest)
	}
	if left < DefaultConnections {
		warn(fmt.Sprintf("raise max_connections: each client uses up to %d", DefaultConnections),
			"the server accepts %d more connections", max(left, 0))
	}
	var who int64
	open := time.Duration(-1)
	if err := oldest(func(scan func(...any) error) error { return scan(&who, &open) }); err == nil && open*time.Second >= LongOpen {
		warn("end the transaction; if it is of a backup, take that from a replica",
			"connection %d has a transaction that has been open for %v: the server keeps all that has changed since, and locks become slower and slower",
			who, open*time.Second)
	}
	return found
}
