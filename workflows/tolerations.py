"""Who may run on a node that no preflight has passed yet: the one place where that is said.

A node joins with the taint `primus-flows.io/startup` (`workflows.labels.STARTUP_TAINT`). It is tolerated by

- pods that look at nodes: tests, sweeps, the health service. Tests are how a node loses the taint, and what watches
  nodes watches these too;
- pods that install components, and pods by which components are shown to serve: on a new cluster every node carries
  the taint, and Argo, JobSet and Kueue must serve before any test can run. Both kinds tolerate every taint
  (`EVERYTHING`);
- pods of the components that stand before admission, the first three and what nodes need for their tests: objects get
  `STARTUP` when they are applied (`workflows.programs.serving.objects.tolerating`), those of charts by their values;
  Their Deployments also get `LOST`: a controller leaves a lost node within seconds, since without it no gang starts;
- the cluster's DNS, which all of these need (`tasks/bootstrap/plays/dns.yaml`).

Pods of runs and of their trials never do: what they tolerate are the taints of their pool, and profiles refuse taints
of ours there. A node is not proven because it is Ready.
"""

from __future__ import annotations

from workflows.programs.serving.world import EVERYTHING, LOST, STARTUP

__all__ = ["EVERYTHING", "LOST", "STARTUP"]
