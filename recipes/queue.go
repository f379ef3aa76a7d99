package recipes

import "context"

func (m *RWMutex) reportDowngraded(ctx context.Context, node string, err error) {
	if hook := m.options.trace.Downgraded; hook != nil {
		hook(ctx, DowngradedInfo{Lock: m.name, Node: node, Err: err})
	}
}

func (m *RWMutex) reportReaped(node string, tries int, err error) {
	if hook := m.options.trace.Reaped; hook != nil {
		hook(context.Background(), ReapedInfo{Lock: m.name, Node: node, Tries: tries, Err: err})
	}
}
