package zkdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

var _ driver.Checker = (*connector)(nil)

// Check implements driver.Checker. It reads the servers' settings with
// ZooKeeper's four-letter commands srvr and conf.
func (c *connector) Check(ctx context.Context) ([]driver.Finding, error) {
	ds, err := c.Connect(ctx)
	if err != nil {
		found := c.settings.checkServers(ctx, c.settings.sessionTimeout)
		if advice := adviceOn(err); advice != "" {
			return append(found, driver.Finding{Level: driver.Problem, Text: err.Error(), Advice: advice}), nil
		}
		return found, err
	}
	defer ds.Close()
	s := ds.(*session)
	granted := s.conn.Describe().Timeout
	found := append(c.settings.checkServers(ctx, granted), s.checkSequences(ctx))
	if asked := c.settings.sessionTimeout; (granted - asked).Abs() >= time.Millisecond {
		found = append(found, driver.Finding{Level: driver.Warning,
			Text:   fmt.Sprintf("the server grants a session timeout of %v, although the client asks for %v", granted, asked),
			Advice: "set the session_timeout of the data source name to a value that the server grants, or change the server's limits"})
	}
	_, survived := s.conn.Outage()
	outage := driver.Finding{Text: fmt.Sprintf("locks survive every outage of up to %v", survived.Round(10*time.Millisecond))}
	if survived <= 0 {
		outage = driver.Finding{Level: driver.Warning,
			Text:   "a short outage at the wrong moment loses locks, because the server's answers take long compared with the session timeout",
			Advice: "set a longer session_timeout, or use a server that is nearer"}
	}
	return append(found, outage), ctx.Err()
}

func adviceOn(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, zk.ErrInvalidACL):
		return "correct the user and the password of the data source name, which ZooKeeper does not check at login, " +
			"or let the owner of the nodes give this user CREATE, DELETE, READ and WRITE on them (setAcl)"
	case zkconn.TimeoutTooShort(err):
		return "set a longer session_timeout in the data source name and let the server grant it (maxSessionTimeout), or leave lease_margin and tick_time out"
	case zkconn.LoginRefused(err):
		return "leave the user out of the data source name, with handover=list, or turn the server's digest scheme on"
	}
	return ""
}

// checkServers asks every server, because clients may be connected to any.
func (s *settings) checkServers(ctx context.Context, granted time.Duration) (found []driver.Finding) {
	warn := func(level driver.Level, text, advice string) {
		found = append(found, driver.Finding{Level: level, Text: text, Advice: advice})
	}
	var good, alone []string
	for _, host := range s.hosts {
		state, err := s.ask(ctx, host, "srvr")
		if err != nil {
			warn(driver.Unknown, host+": "+err.Error(), adviceOnSilence(err))
			continue
		}
		before := len(found)
		version, mode := state["Zookeeper version"], state["Mode"]
		if text, advice := weakVersion(version); text != "" {
			warn(driver.Warning, host+": "+text, advice)
		}
		if mode == "standalone" {
			alone = append(alone, host)
		}
		conf, err := s.ask(ctx, host, "conf")
		ms, _ := strconv.ParseUint(conf["tickTime"], 10, 31)
		tick := time.Duration(ms) * time.Millisecond
		switch {
		case err != nil:
			warn(driver.Unknown, host+": "+err.Error(), "add conf to the server's 4lw.commands.whitelist, or make sure that session_timeout is at least two of the server's ticks")
		case tick == 0:
			warn(driver.Unknown, host+": conf shows no tickTime", "make sure that session_timeout is at least two of the server's ticks")
		case granted < 2*tick:
			warn(driver.Warning, fmt.Sprintf("%s: the session timeout of %v is less than two ticks of %v: a lock may have two holders", host, granted, tick),
				fmt.Sprintf("set the session_timeout of the data source name to %v or more, and leave the server's minSessionTimeout out", 2*tick))
		case s.tick > 0 && s.tick < tick:
			warn(driver.Problem, fmt.Sprintf("%s: the server has tickTime %v, and the data source name states %v: a lock may have two holders", host, tick, s.tick),
				fmt.Sprintf("set tick_time=%v, or leave it out", tick))
		}
		if len(found) == before {
			good = append(good, fmt.Sprintf("%s is %s, version %s", host, mode, shortVersion(version)))
		}
	}
	if len(alone) > 0 && len(s.hosts) > 1 {
		warn(driver.Problem, strings.Join(alone, ", ")+": the server is standalone, and the data source name has other servers: clients of different servers do not exclude each other",
			"make the servers one ensemble, or name only one of them")
		return found
	}
	if len(good) > 0 {
		found = append(found, driver.Finding{Text: strings.Join(good, "; ")})
	}
	return found
}

var (
	errNotAllowed = errors.New("the server does not allow this word, which shows its settings")
	errNoQuorum   = errors.New("the server has no quorum")
)

func adviceOnSilence(err error) string {
	switch {
	case errors.Is(err, errNotAllowed):
		return "add srvr and conf to the server's 4lw.commands.whitelist"
	case errors.Is(err, errNoQuorum):
		return "start enough of the other servers, and make sure that this one reaches them"
	}
	return "make sure that the server runs and takes another connection from this machine (maxClientCnxns)"
}

// ask sends a four-letter command and parses the lines of the answer.
func (s *settings) ask(ctx context.Context, host, word string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	config, err := s.connConfig().TLS.Load()
	if err != nil {
		return nil, err
	}
	dial := new(net.Dialer).DialContext
	if config != nil {
		dial = (&tls.Dialer{Config: config}).DialContext
	}
	conn, err := dial(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, word); err != nil {
		return nil, fmt.Errorf("no answer to the word %s: %w", word, err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 1<<16))
	lines := make(map[string]string)
	for line := range strings.Lines(string(answer)) {
		if i := strings.IndexAny(line, ":="); i > 0 {
			lines[strings.TrimSpace(line[:i])] = strings.TrimSpace(line[i+1:])
		}
	}
	switch {
	case strings.Contains(string(answer), "not in the whitelist"):
		return nil, fmt.Errorf("the word %s: %w", word, errNotAllowed)
	case strings.Contains(string(answer), "not currently serving"):
		return nil, errNoQuorum
	case len(lines) == 0 && err != nil:
		return nil, fmt.Errorf("no answer to the word %s: %w", word, err)
	case len(lines) == 0:
		return nil, fmt.Errorf("no answer to the word %s", word)
	}
	return lines, nil
}

// shortVersion strips the commit and the date from a server's version.
func shortVersion(text string) string {
	text, _, _ = strings.Cut(text, "-")
	text, _, _ = strings.Cut(text, ",")
	return text
}

// weakVersion returns a server version's known problem with locks, and advice.
func weakVersion(text string) (weakness, advice string) {
	var v [3]int
	if n, _ := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 2 {
		return "", ""
	}
	const upgrade = "install the latest release of its line"
	if slices.Compare(v[:], []int{3, 5, 3}) < 0 {
		return "version " + shortVersion(text) + " never removes the nodes of unused queues", "install ZooKeeper 3.5.3 or later"
	}
	for _, faulty := range [][2][]int{{{3, 6, 0}, {3, 6, 3}}, {{3, 7, 0}, {3, 7, 1}}, {{3, 8, 0}, {3, 8, 0}}} {
		if slices.Compare(v[:], faulty[0]) >= 0 && slices.Compare(v[:], faulty[1]) <= 0 {
			return "version " + shortVersion(text) + " may leave a write unanswered (ZOOKEEPER-4537): an Unlock may fail, or a Lock take 2 s longer", upgrade
		}
	}
	return "", ""
}

// mostQueues limits how many nodes checkSequences reads.
const mostQueues = 10_000

// checkSequences warns if a queue has nearly run out of sequence numbers.
func (s *session) checkSequences(ctx context.Context) (f driver.Finding) {
	type full struct {
		queue string
		used  int64
	}
	var worst full
	read, complete := 0, true
	root := s.settings.chroot
	if root == "" {
		root = "/"
	}
	err := zkconn.AwaitErr(ctx, s.conn, func() error {
		for left := []string{root}; len(left) > 0 && ctx.Err() == nil; {
			if read == mostQueues {
				complete = false
				return nil
			}
			node := left[len(left)-1]
			left = left[:len(left)-1]
			children, stat, err := s.conn.Children(node)
			switch read++; {
			case errors.Is(err, zk.ErrNoNode):
				continue
			case errors.Is(err, zk.ErrNoAuth):
				complete = false
				continue
			case err != nil:
				return explain(err, "list", node, "READ on it")
			}
			if used := int64(uint32(stat.Cversion+stat.NumChildren) / 2); used > worst.used && !slices.Contains(children, successor) {
				worst = full{strings.TrimPrefix(strings.TrimPrefix(node, s.settings.chroot), "/"), used}
			}
			for _, child := range children {
				if _, contender := sequenceOf(child); !contender && path.Join(node, child) != "/"+reserved {
					left = append(left, path.Join(node, child))
				}
			}
		}
		return nil
	})
	limit := s.settings.sequenceLimit
	switch {
	case err != nil:
		f.Level, f.Text, f.Advice = driver.Unknown, err.Error(), "try again when the server is less busy"
	case worst.used >= limit-limit/10:
		f.Level = driver.Warning
		f.Text = fmt.Sprintf("the queue %q has used %d of %d sequences", worst.queue, worst.used, limit)
		f.Advice = "let no client hold or wait for this lock for a moment before they are used up: the next client then starts them over"
	case complete:
		f.Text = fmt.Sprintf("no queue has used more than %d of %d sequences", worst.used, limit)
	default:
		f.Level = driver.Unknown
		f.Text = fmt.Sprintf("none of the first %d nodes that this user may read has used more than %d of %d", read, worst.used, limit)
		f.Advice = "watch the numbers in the names of the nodes of the locks that are used most"
	}
	return f
}
