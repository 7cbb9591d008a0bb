"""What jobs leave behind, read: the rehearsals of a project (`history`), a study with its trials (`study`, `trials`), and the rows
that its charts are drawn from (`chart_data`), and the charts (`charts`), which the HTML report and the console of the local Vertex show.
"""
