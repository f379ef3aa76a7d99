package promdlock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/promdlock"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/majority"
	"github.com/dlock-go/dlock/memdriver"
)

const trouble, minutes = 10, 30

// once runs in the minute of trouble, often in each later minute.
var scenarios = map[string]struct {
	once, often func(p *program)
	fires       string
}{
	"health": {func(p *program) {
		p.stores[2].Faults().ExpireAll() // one of the three stores of the majority
		p.lost("quorum", "session_ended", "member")
		closed := dlock.NewClient(p.stores[0], p.options...)
		must(closed.RWMutex("a").Lock(bg))
		must(0, closed.Close())
		p.lost("a", "closed", "lock")
	}, func(p *program) {
		p.work()
		p.handOver()
	}, ""},
	"pause": {func(p *program) {
		l := must(p.client.RWMutex("a").Lock(bg))
		p.stores[0].Faults().PauseAll(time.Hour)
		_ = l.Err()
		p.lost("a", "session_ended", "lock")
	}, idle, `alertname="DlockLockLost",lock="a",reason="session_ended",recipe="lock"`},
	"operator": {func(p *program) {
		m := p.client.RWMutex("a")
		must(0, must(m.Lock(bg)).Downgrade(bg))
		must(0, m.Remove(bg, must(m.Queue(bg))[0]))
		p.lost("a", "removed", "lock")
	}, idle, `alertname="DlockLockLost",lock="a",reason="removed",recipe="lock"`},
	"two stores": {func(p *program) {
		p.stores[1].Faults().ExpireAll()
		p.stores[2].Faults().ExpireAll()
		p.lost("quorum", "session_ended", "majority")
	}, idle, `alertname="DlockLockLost",lock="quorum",reason="session_ended",recipe="majority"`},
	"hang": {func(p *program) {
		must(p.client.RWMutex("a", dlock.WithMaxHold(time.Millisecond)).Lock(bg))
		p.lost("a", "max_hold", "lock")
	}, idle, `alertname="DlockHeldTooLong",lock="a",recipe="lock"`},
	"wait": {(*program).handOver, idle, `alertname="DlockWaitersWithoutGrants",lock="b",recipe="lock"`},
	"outage": {func(p *program) { p.stores[0].Faults().Down() }, func(p *program) {
		_, _ = dlock.NewClient(p.stores[0], p.options...).RWMutex("b").TryLock(bg)
	}, `alertname="DlockStoreUnreachable"`},
	"slow store": {func(p *program) {
		for strings.Contains(p.metrics(), "dlock_lease_left_ratio_bucket{le=\"0.25\"} 0\n") {
			must(0, p.client.Ping(bg))
			p.stores[0].Faults().PauseAll(5700 * time.Millisecond) // leaves less than a quarter of the lease
			time.Sleep(1500 * time.Millisecond)                    // longer than the heartbeat interval
		}
	}, idle, `alertname="DlockLeaseNearlyOut"`},
}

func idle(*program) {}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

type program struct {
	registry *prometheus.Registry
	options  []dlock.Option
	stores   []*memdriver.Store // all for the majority, one for the client
	client   *dlock.Client
	held     *dlock.Lock      // the lock b
	next     chan *dlock.Lock // receives b when the waiting call gets it
}

const scenarioVariable = "PROMDLOCK_SCENARIO" // makes TestMain call runScenario

func runScenario(name string) {
	p := &program{registry: prometheus.NewRegistry(), next: make(chan *dlock.Lock)}
	trace := must(promdlock.New(p.registry, promdlock.WithLockLabel(func(name string) string { return name })))
	p.options = []dlock.Option{dlock.WithTrace(trace)}
	var clients []*dlock.Client
	for range 3 {
		p.stores = append(p.stores, memdriver.New())
		clients = append(clients, dlock.NewClient(p.stores[len(clients)], p.options...))
	}
	p.client = clients[0]
	must((&majority.Mutex{Name: "quorum", Clients: clients}).Lock(bg))
	p.await(`dlock_held{lock="quorum",mode="exclusive",recipe="member"} 3`)
	election := dlock.NewClient(memdriver.New(), p.options...).Election("leader")
	must(election.Campaign(bg))
	go election.Campaign(bg)
	for minute := range minutes {
		switch {
		case minute < trouble:
			p.work()
		case minute == trouble:
			scenarios[name].once(p)
			fallthrough
		default:
			scenarios[name].often(p)
		}
		fmt.Println(p.metrics() + "# scraped")
	}
}

func (p *program) metrics() string {
	reply := httptest.NewRecorder()
	promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}).ServeHTTP(reply, httptest.NewRequest("GET", "/metrics", nil))
	return reply.Body.String()
}

func (p *program) await(line string) {
	for began := time.Now(); !strings.Contains(p.metrics(), "\n"+line+"\n"); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			panic("no " + line)
		}
	}
}

func (p *program) lost(lock, reason, recipe string) {
	p.await(fmt.Sprintf("dlock_losses_total{lock=%q,mode=\"exclusive\",reason=%q,recipe=%q} 1", lock, reason, recipe))
	p.await(heldA + "0")
}

const heldA = `dlock_held{lock="a",mode="exclusive",recipe="lock"} `

// work takes a lock, and makes other calls fail while the lock is held.
func (p *program) work() {
	l := must(p.client.RWMutex("a").Lock(bg))
	p.await(heldA + "1")
	for _, option := range []dlock.Option{dlock.WithMaxQueue(1), dlock.WithTimeout(time.Millisecond)} {
		_, _ = p.client.RWMutex("a", option).Lock(bg)
	}
	must(0, l.Downgrade(bg))
	must(0, l.Unlock())
	p.await(heldA + "0")
	p.await(`dlock_waiting{lock="a",mode="exclusive",recipe="lock"} 0`)
}

// handOver leaves a call waiting for lock b. The next handOver passes b to it.
func (p *program) handOver() {
	if p.held == nil {
		p.held = must(p.client.RWMutex("b").Lock(bg))
	} else {
		must(0, p.held.Unlock())
		p.held = <-p.next
	}
	go func() { p.next <- must(p.client.RWMutex("b").Lock(bg)) }()
	p.await(`dlock_waiting{lock="b",mode="exclusive",recipe="lock"} 1`)
}

// The test tells promtool that a minute lies between two scrapes.
func TestAlarmsFireInTroubleOnly(t *testing.T) {
	type object map[string]any
	rules, panels := string(must(os.ReadFile("rules.yml"))), string(must(os.ReadFile("dashboard.json")))
	find := func(text, pattern string) (found []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		return found
	}
	limited, cancel := context.WithTimeout(bg, 5*time.Minute)
	defer cancel()
	queries, exists, fired, tests := find(panels, `"expr": "([^"]+)"`), map[string]bool{"job": true, "instance": true}, "", []object{}
	for name, s := range scenarios {
		process := exec.CommandContext(limited, os.Args[0])
		process.Env, process.Stderr = append(os.Environ(), scenarioVariable+"="+name), os.Stderr
		out, err := process.Output()
		require.NoError(t, err, name)
		series := make(map[string]string)
		for minute, scrape := range strings.Split(string(out), "# scraped\n")[:minutes] {
			for _, line := range regexp.MustCompile(`(?m)^(\w+)\{?(.*?)\}? (\S+)$`).FindAllStringSubmatch(scrape, -1) {
				name := line[1] + `{job="shop",instance="web1",` + line[2] + "}"
				series[name] += strings.Repeat("_ ", minute-len(strings.Fields(series[name]))) + line[3] + " "
				for _, key := range append(find(line[2], `(\w+)=`), line[1]) {
					exists[key] = true
				}
			}
		}
		input, firing := []object{}, []object{}
		for name, values := range series {
			input = append(input, object{"series": name, "values": values})
		}
		if fired += s.fires; s.fires != "" {
			firing = append(firing, object{"labels": "{" + s.fires + "}", "value": 1})
		}
		at := fmt.Sprint(minutes-1, "m")
		expect := []object{{"eval_time": at, "exp_samples": firing, "expr": `group by (alertname, recipe, lock, reason) (max_over_time(ALERTS{alertstate="firing"}[1h]))`}}
		for _, query := range queries {
			query = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*").Replace(query)
			expect = append(expect, object{"eval_time": at, "exp_samples": []object{{"labels": "{}", "value": 1}}, "expr": "group(" + query + ")"})
		}
		tests = append(tests, object{"name": name, "interval": "1m", "input_series": input, "promql_expr_test": expect})
	}
	for _, alarm := range find(rules, `- alert: (\w+)`) {
		assert.Contains(t, fired, `"`+alarm+`"`, "no scenario fires it")
	}
	for _, pattern := range []string{`\b(dlock_\w+)`, `(\w+)[=!]~?["']`, `\b(?:by|on) \(([^)]*)\)`, `\$labels\.(\w+)`, `\{\{(\w+)`} {
		for _, names := range find(rules+panels, pattern) {
			for name := range strings.SplitSeq(names, ", ") {
				assert.True(t, exists[name], "no metric or label %s", name)
			}
		}
	}

	testenv.Dependency{Name: "promtool", Variable: "DLOCK_TEST_PROMETHEUS", Install: "sh scripts/need-prometheus.sh"}.
		Require(t, testenv.OnPath("promtool"))
	test := filepath.Join(t.TempDir(), "test.yml")
	text := must(json.Marshal(object{"rule_files": []string{must(filepath.Abs("rules.yml"))}, "evaluation_interval": "1m", "tests": tests}))
	require.NoError(t, os.WriteFile(test, text, 0o600)) // JSON is YAML
	out, err := exec.Command("promtool", "test", "rules", test).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
