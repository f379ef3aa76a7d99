package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

const releaseHelp = `Usage: dlock release [flags] NAME NODE

Removes a contender from the queue of the lock NAME: a holder that is stuck, or a
waiter. NODE is the name of its node as dlock queue shows it. It shows the
contender and asks before it removes it, unless -yes is given.

If the contender holds the lock, the next one gets it at once. The former holder
is told, but it may be told later, and it may not stop: both may work at the same
time. Use this only if the process is dead, or if the resource checks fencing
tokens. (The store removes the node of a dead process by itself, after its
session timeout.) A waiter that is removed queues again, at the end.

Only the contender that was shown is removed: it is identified by its node and
its token.

Exit status: 0, it was removed; 1, it was not, because it is gone, has changed
since it was shown, or the answer was no, or the store could not be reached or
failed; 2, the arguments are not valid, or there is no terminal to ask on.

Flags:
`

func release(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := newTool("release", releaseHelp, "the name of a lock, and a node that dlock queue shows", args, stdout, stderr)
	yes := t.flags.Bool("yes", false, "do not ask")
	arguments, client, status := t.open(2, 2)
	if client == nil {
		return status
	}
	defer client.Close()
	if !*yes && !isTerminal(os.Stdin) {
		t.say("there is no terminal to ask on: give -yes to remove without a question")
		return usageStatus
	}
	ask := func(question string) bool { return *yes || confirm(ctx, os.Stdin, stdout, question) }
	if err := t.remove(ctx, client.RWMutex(arguments[0]), arguments[1], ask); err != nil {
		return t.failed(err)
	}
	fmt.Fprintln(stdout, "removed")
	return 0
}

func (t *tool) remove(ctx context.Context, lock *dlock.RWMutex, node string, ask func(question string) bool) error {
	c, err := t.contender(ctx, lock, node)
	if err != nil {
		return err
	}
	fmt.Fprint(t.stdout, table([]dlock.Contender{c}, time.Now()))
	warning := "It waits. If its process lives, it queues again, at the end."
	if c.Holds {
		warning = "It holds the lock. If it still works, it and the next holder will work at the same time."
	}
	if !ask(warning + "\nRemove? [y/N] ") {
		return errors.New("not removed: nobody said yes")
	}
	now, err := t.contender(ctx, lock, c.Node)
	if err != nil {
		return err
	}
	if !sameState(c, now) {
		return fmt.Errorf("not removed, because it has changed since: it %s, %v, token %d", stateName(now), now.Mode, now.Token)
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	switch err := lock.Remove(ctx, c); {
	case errors.Is(err, dlock.ErrGone):
		return fmt.Errorf("not removed, because it has left the queue since: %w", err)
	case errors.Is(err, dlock.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it may have been removed or not, so look at the queue: %w", err)
	case err != nil:
		return fmt.Errorf("not removed: %w", err)
	}
	return nil
}

// contender finds a contender by its node name, which may be quoted as in a
// table.
func (t *tool) contender(ctx context.Context, lock *dlock.RWMutex, node string) (c dlock.Contender, err error) {
	contenders, err := t.look(ctx, lock)
	if err != nil {
		return c, err
	}
	i := slices.IndexFunc(contenders, func(c dlock.Contender) bool { return c.Node == node || cell(c.Node) == node })
	if i < 0 {
		return c, fmt.Errorf("not removed: no contender of %s has the node %s: see dlock queue", cell(lock.Name()), cell(node))
	}
	return contenders[i], nil
}

func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) bool {
	fmt.Fprint(out, question)
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answers <- line
	}()
	select {
	case answer := <-answers:
		answer = strings.ToLower(strings.TrimSpace(answer))
		return answer == "y" || answer == "yes"
	case <-ctx.Done():
		fmt.Fprintln(out)
		return false
	}
}
