// Argo's own validation of Workflows, asked line by line: one Workflow as JSON in, one answer as JSON out.
//
// It is what the workflow-controller asks before it starts a workflow. Nothing is looked up: there are no other
// templates than those of the workflow itself.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	wfv1 "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	"github.com/argoproj/argo-workflows/v4/util/logging"
	"github.com/argoproj/argo-workflows/v4/workflow/validate"
	kjson "sigs.k8s.io/json"
)

const longestLine = 16 << 20

type noTemplates struct{}

func (noTemplates) Get(_ context.Context, name string) (*wfv1.WorkflowTemplate, error) {
	return nil, fmt.Errorf("there is no WorkflowTemplate %q", name)
}

type noClusterTemplates struct{}

func (noClusterTemplates) Get(_ context.Context, name string) (*wfv1.ClusterWorkflowTemplate, error) {
	return nil, fmt.Errorf("there is no ClusterWorkflowTemplate %q", name)
}

// What is said of one Workflow. Both are empty where nothing is wrong.
type answer struct {
	// Fields that Argo's types do not have, or have twice, or of another type.
	Fields string `json:"fields"`
	// What the validation refuses.
	Refused string `json:"refused"`
}

func judge(ctx context.Context, line []byte) (said answer) {
	workflow := &wfv1.Workflow{}
	strict, err := kjson.UnmarshalStrict(line, workflow)
	if err != nil {
		return answer{Fields: err.Error()}
	}
	var words []string
	for _, one := range strict {
		words = append(words, one.Error())
	}
	said.Fields = strings.Join(words, "; ")
	defer func() {
		if panicked := recover(); panicked != nil {
			said.Refused = fmt.Sprintf("panic: %v", panicked)
		}
	}()
	err = validate.Workflow(ctx, noTemplates{}, noClusterTemplates{}, workflow, nil, validate.Opts{})
	if err != nil {
		said.Refused = err.Error()
	}
	return said
}

func main() {
	ctx := logging.WithLogger(context.Background(), logging.NewSlogLogger(logging.Error, logging.Text))
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := answers.Encode(judge(ctx, lines.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
